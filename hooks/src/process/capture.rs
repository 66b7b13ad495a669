//! What is kept of what a process prints: a bounded part of any length of output.

use std::collections::VecDeque;

/// Which part of a stream is kept. The rest is read and thrown away, so that the process never waits for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The first bytes, at most this many.
    Head(usize),
    /// Of this many bytes 40 % from the beginning and 60 % from the end.
    HeadAndTail(usize),
}

/// What was kept of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    head: Vec<u8>,
    tail: Vec<u8>,
    cut: u64,
}

impl Captured {
    /// The beginning; everything when nothing was cut.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The end, behind what was cut; empty when nothing was.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// How many bytes between [`Captured::head`] and [`Captured::tail`] were thrown away.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// As text, with a note where something was cut. Invalid UTF-8 is replaced, a character that was cut is left out.
    pub fn text(&self) -> String {
        if self.cut == 0 {
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        format!("{}{}{}", cut_text_before(&self.head), note(self.cut), cut_text_after(&self.tail))
    }
}

/// What stands in the place of `cut` bytes.
pub fn note(cut: u64) -> String {
    format!("\n[... {cut} bytes cut ...]\n")
}

/// Bytes whose continuation was cut off, as text.
pub fn cut_text_before(bytes: &[u8]) -> String {
    // A last piece that is no character is what the cut left of one.
    let broken = bytes.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
    String::from_utf8_lossy(&bytes[..bytes.len() - broken]).into_owned()
}

/// Bytes whose beginning was cut off, as text.
pub fn cut_text_after(bytes: &[u8]) -> String {
    let broken = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    String::from_utf8_lossy(&bytes[broken..]).into_owned()
}

/// A stream while it is read.
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    head_limit: usize,
    tail: Ring,
}

impl Capture {
    pub(super) fn new(keep: Keep) -> Self {
        let (head_limit, tail_limit) = match keep {
            Keep::Head(limit) => (limit, 0),
            Keep::HeadAndTail(limit) => (limit / 5 * 2, limit - limit / 5 * 2),
        };
        Self { head: Vec::new(), head_limit, tail: Ring::new(tail_limit) }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(self.head_limit - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.push(rest);
    }

    pub(super) fn finish(self) -> Captured {
        let Self { mut head, tail, .. } = self;
        let cut = tail.lost;
        let mut tail = Vec::from(tail.bytes);
        if cut == 0 {
            head.append(&mut tail);
        }
        Captured { head, tail, cut }
    }
}

/// The last bytes of a stream.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: VecDeque<u8>,
    limit: usize,
    /// Bytes that were overwritten.
    lost: u64,
}

impl Ring {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), limit, lost: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let skipped = bytes.len().saturating_sub(self.limit);
        let overwritten = (self.bytes.len() + bytes.len() - skipped).saturating_sub(self.limit);
        self.bytes.drain(..overwritten);
        self.bytes.extend(&bytes[skipped..]);
        self.lost += (overwritten + skipped) as u64;
    }

    /// The bytes that are there, and how many were overwritten before them.
    pub(super) fn bytes(&mut self) -> (&[u8], u64) {
        (self.bytes.make_contiguous(), self.lost)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets the first bytes: they were handed out.
    pub(super) fn consume(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
        self.lost = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(keep: Keep, pieces: &[&str]) -> Captured {
        let mut capture = Capture::new(keep);
        for piece in pieces {
            capture.push(piece.as_bytes());
        }
        capture.finish()
    }

    #[test]
    fn what_fits_is_kept_whole() {
        for keep in [Keep::Head(10), Keep::HeadAndTail(10)] {
            let whole = captured(keep, &["01234", "", "56789"]);
            assert_eq!((whole.head(), whole.tail(), whole.cut()), (&b"0123456789"[..], &b""[..], 0));
            assert_eq!(whole.text(), "0123456789");
        }
    }

    #[test]
    fn the_middle_is_cut_and_counted_however_the_pieces_fall() {
        let text: String = ('a'..='z').collect();
        for size in 1..=text.len() {
            let pieces: Vec<&str> =
                text.as_bytes().chunks(size).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
            let cut = captured(Keep::HeadAndTail(10), &pieces);
            assert_eq!(cut.text(), "abcd\n[... 16 bytes cut ...]\nuvwxyz", "pieces of {size}");
            let cut = captured(Keep::Head(3), &pieces);
            assert_eq!((cut.text(), cut.cut()), ("abc\n[... 23 bytes cut ...]\n".to_owned(), 23));
        }
    }

    #[test]
    fn nothing_may_be_kept() {
        let nothing = captured(Keep::HeadAndTail(0), &["abc"]);
        assert_eq!((nothing.head(), nothing.tail(), nothing.cut()), (&b""[..], &b""[..], 3));
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        let cut = captured(Keep::HeadAndTail(10), &["abcä", "0123456789", "ä12345"]);
        assert_eq!(cut.text(), "abc\n[... 12 bytes cut ...]\n12345");
        let invalid = captured(Keep::Head(10), &["ok"]);
        assert_eq!(invalid.text(), "ok");
        assert_eq!(cut_text_before(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn a_ring_tells_what_it_lost_since_it_was_read() {
        let mut ring = Ring::new(4);
        ring.push(b"abcdef");
        assert_eq!(ring.bytes(), (&b"cdef"[..], 2));
        ring.consume(3);
        ring.push(b"gh");
        assert_eq!(ring.bytes(), (&b"fgh"[..], 0));
        ring.push(b"ij");
        assert_eq!(ring.bytes(), (&b"ghij"[..], 1));
        assert_eq!(ring.len(), 4);
    }
}
