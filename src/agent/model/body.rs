//! Reads the body of an answer with limits: on silence, on size, and on how much may pass without completing an event.

use std::time::Duration;

use futures_util::Stream;
use reqwest::Response;

use super::{ModelError, refusal};

/// A completion that does not stream, in bytes.
const LONGEST_OBJECT: usize = 8 << 20;
/// All bytes of a stream.
const LONGEST_STREAM: usize = 256 << 20;
/// Bytes of a stream between two blank lines, so of one event.
const LONGEST_EVENT: usize = 4 << 20;
/// What is read of an error's body.
const EXCERPT: usize = 64 << 10;
/// What is quoted of a stream that came to nothing.
const QUOTED_BEGINNING: usize = 300;
/// How long the body of an error may take: it is only for the log.
const EXCERPT_TIME: Duration = Duration::from_secs(5);

/// What a body turns out to be. Servers are not believed about their `Content-Type`: some name streams `text/plain`,
/// some send objects as `text/event-stream`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Server-sent events.
    Events,
    /// One JSON object.
    Object,
    /// HTML.
    WebPage,
}

/// The body of an answer, read piece by piece.
pub(super) struct Body {
    response: Response,
    silence: Duration,
    /// Read already to tell the kind.
    head: Vec<u8>,
}

impl Body {
    /// A body whose server may be silent for `silence`.
    pub(super) fn new(response: Response, silence: Duration) -> Self {
        Self { response, silence, head: Vec::new() }
    }

    async fn next(&mut self) -> Result<Option<Vec<u8>>, ModelError> {
        if !self.head.is_empty() {
            return Ok(Some(std::mem::take(&mut self.head)));
        }
        match tokio::time::timeout(self.silence, self.response.chunk()).await {
            Err(_) => Err(refusal::silent(self.silence)),
            Ok(Err(error)) => {
                let cause = anyhow::Error::from(error.without_url());
                Err(refusal::broken(format!("the model's answer broke off: {cause:#}")))
            }
            Ok(Ok(chunk)) => Ok(chunk.map(Vec::from)),
        }
    }

    /// Looks at the first byte that is not white space. Nothing is lost by looking.
    ///
    /// # Errors
    /// The body is silent, breaks, or is empty.
    pub(super) async fn kind(&mut self) -> Result<Kind, ModelError> {
        let mut head = Vec::new();
        let first = loop {
            if let Some(first) = first_byte(&head) {
                break first;
            }
            match self.next().await? {
                Some(piece) if head.len() < EXCERPT => head.extend(piece),
                _ => return Err(refusal::broken("the model's answer is empty".to_owned())),
            }
        };
        self.head = head;
        Ok(match first {
            b'{' | b'[' => Kind::Object,
            b'<' => Kind::WebPage,
            _ => Kind::Events,
        })
    }

    /// What was looked at to tell the kind, for the log.
    pub(super) fn beginning(&self) -> String {
        String::from_utf8_lossy(&self.head[..self.head.len().min(QUOTED_BEGINNING)]).into_owned()
    }

    /// The beginning of the body as text, whatever it is.
    pub(super) async fn excerpt(mut self) -> String {
        let mut excerpt = Vec::new();
        let read = async {
            while excerpt.len() < EXCERPT
                && let Ok(Some(piece)) = self.next().await
            {
                excerpt.extend(piece);
            }
        };
        // What came in time is all there is to quote.
        let _ = tokio::time::timeout(EXCERPT_TIME, read).await;
        excerpt.truncate(EXCERPT);
        String::from_utf8_lossy(&excerpt).into_owned()
    }

    /// All of it.
    ///
    /// # Errors
    /// The body is silent, breaks, or is longer than [`LONGEST_OBJECT`].
    pub(super) async fn whole(mut self) -> Result<Vec<u8>, ModelError> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next().await? {
            whole.extend(piece);
            if whole.len() > LONGEST_OBJECT {
                return Err(refusal::too_long(format!("the model's answer is larger than {LONGEST_OBJECT} bytes")));
            }
        }
        if whole.starts_with(BOM) {
            whole.drain(..BOM.len());
        }
        Ok(whole)
    }

    /// The pieces as a stream for the event parser. A blank line is added at the end: a server that just stops after
    /// its last line has said it.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Vec<u8>, ModelError>> {
        let start = Some((self, Watch::default()));
        futures_util::stream::try_unfold(start, |state| async {
            let Some((mut body, mut watch)) = state else { return Ok(None) };
            match body.next().await? {
                None => Ok(Some((b"\n\n".to_vec(), None))),
                Some(piece) => {
                    watch.see(&piece)?;
                    Ok(Some((piece, Some((body, watch)))))
                }
            }
        })
    }
}

const BOM: &[u8] = b"\xef\xbb\xbf";

fn first_byte(head: &[u8]) -> Option<u8> {
    head.strip_prefix(BOM).unwrap_or(head).iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

/// Bounds what the event parser may have to keep.
#[derive(Debug, Default)]
struct Watch {
    total: usize,
    since_blank_line: usize,
    line_is_empty: bool,
}

impl Watch {
    fn see(&mut self, piece: &[u8]) -> Result<(), ModelError> {
        self.total += piece.len();
        for byte in piece {
            self.since_blank_line += 1;
            match byte {
                b'\n' if self.line_is_empty => self.since_blank_line = 0,
                b'\n' => self.line_is_empty = true,
                b'\r' => {}
                _ => self.line_is_empty = false,
            }
        }
        if self.total > LONGEST_STREAM || self.since_blank_line > LONGEST_EVENT {
            return Err(refusal::too_long(format!(
                "the model's stream is too large ({} bytes, {} in one event)",
                self.total, self.since_blank_line
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_counts() {
        assert_eq!(first_byte(b""), None);
        assert_eq!(first_byte(b" \r\n"), None);
        assert_eq!(first_byte(b"\n {}"), Some(b'{'));
        assert_eq!(first_byte(b"\xef\xbb\xbfdata: x"), Some(b'd'));
    }

    #[test]
    fn many_events_are_fine_and_one_huge_event_is_not() {
        for line in ["data: xxxxxxx\n\n", "data: xxxxxxx\r\n\r\n", ": still here\n\n"] {
            let mut watch = Watch::default();
            let piece = line.repeat(1000);
            for _ in 0..(2 * LONGEST_EVENT / piece.len()) {
                watch.see(piece.as_bytes()).unwrap();
            }
        }
        for line in ["x", "data: x\n", "data: x\r\n"] {
            let mut watch = Watch::default();
            let piece = line.repeat(LONGEST_EVENT / line.len() / 2);
            watch.see(piece.as_bytes()).unwrap();
            watch.see(piece.as_bytes()).unwrap();
            assert!(watch.see(piece.as_bytes()).is_err());
        }
    }
}
