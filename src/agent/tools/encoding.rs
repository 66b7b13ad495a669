//! Text files in the encodings people have: UTF-8 with and without a mark, UTF-16 with one, and Latin-1 for what is neither.

/// How a file's bytes are its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Utf8WithMark,
    Utf16Le,
    Utf16Be,
    Latin1,
}

const MARKS: [(&[u8], Encoding); 3] =
    [(b"\xef\xbb\xbf", Encoding::Utf8WithMark), (b"\xff\xfe", Encoding::Utf16Le), (b"\xfe\xff", Encoding::Utf16Be)];
/// So much of a file tells whether it is text.
pub(super) const LOOKED_AT: usize = 8 << 10;

impl Encoding {
    /// Of a file that begins so; `None` for what is no text.
    pub(super) fn of(beginning: &[u8]) -> Option<Self> {
        if let Some((_, encoding)) = MARKS.iter().find(|(mark, _)| beginning.starts_with(mark)) {
            return Some(*encoding);
        }
        let looked_at = &beginning[..beginning.len().min(LOOKED_AT)];
        if looked_at.contains(&0) {
            return None;
        }
        match std::str::from_utf8(looked_at) {
            Ok(_) => Some(Self::Utf8),
            // A character may be cut at the end of what is looked at, but not at the end of the file.
            Err(error) if error.error_len().is_none() && looked_at.len() == LOOKED_AT => Some(Self::Utf8),
            Err(_) => Some(Self::Latin1),
        }
    }

    /// Its name, where the reader should know it.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::Utf8 | Self::Utf8WithMark => None,
            Self::Utf16Le => Some("utf-16le"),
            Self::Utf16Be => Some("utf-16be"),
            Self::Latin1 => Some("latin-1"),
        }
    }

    /// The text of a whole file. `None`: the bytes are not of this encoding after all.
    pub(super) fn decode(self, bytes: &[u8]) -> Option<String> {
        let units = |big: bool| {
            let unit = move |pair: &[u8]| match big {
                true => u16::from_be_bytes([pair[0], pair[1]]),
                false => u16::from_le_bytes([pair[0], pair[1]]),
            };
            let body = &bytes[2.min(bytes.len())..];
            body.chunks_exact(2).map(unit).collect::<Vec<u16>>()
        };
        match self {
            Self::Utf8 => std::str::from_utf8(bytes).ok().map(str::to_owned),
            Self::Utf8WithMark => std::str::from_utf8(&bytes[3.min(bytes.len())..]).ok().map(str::to_owned),
            Self::Utf16Le if bytes.len().is_multiple_of(2) => String::from_utf16(&units(false)).ok(),
            Self::Utf16Be if bytes.len().is_multiple_of(2) => String::from_utf16(&units(true)).ok(),
            Self::Utf16Le | Self::Utf16Be => None,
            Self::Latin1 => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        }
    }

    /// The bytes of a text. `None`: it has a character that the encoding does not know.
    pub(super) fn encode(self, text: &str) -> Option<Vec<u8>> {
        let marked = |mark: &[u8], bytes: &mut dyn Iterator<Item = u8>| {
            let mut out = mark.to_vec();
            out.extend(bytes);
            out
        };
        Some(match self {
            Self::Utf8 => text.as_bytes().to_vec(),
            Self::Utf8WithMark => marked(b"\xef\xbb\xbf", &mut text.bytes()),
            Self::Utf16Le => marked(b"\xff\xfe", &mut text.encode_utf16().flat_map(u16::to_le_bytes)),
            Self::Utf16Be => marked(b"\xfe\xff", &mut text.encode_utf16().flat_map(u16::to_be_bytes)),
            Self::Latin1 => text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_back_as_it_was() {
        for (bytes, encoding, text) in [
            (&b"caf\xc3\xa9"[..], Encoding::Utf8, "caf\u{e9}"),
            (b"\xef\xbb\xbfhi", Encoding::Utf8WithMark, "hi"),
            (b"\xff\xfeh\0i\0", Encoding::Utf16Le, "hi"),
            (b"\xfe\xff\0h\0i", Encoding::Utf16Be, "hi"),
            (b"caf\xe9", Encoding::Latin1, "caf\u{e9}"),
            (b"", Encoding::Utf8, ""),
        ] {
            assert_eq!(Encoding::of(bytes), Some(encoding));
            assert_eq!(encoding.decode(bytes).as_deref(), Some(text));
            assert_eq!(encoding.encode(text).as_deref(), Some(bytes));
        }
        assert_eq!(Encoding::of(b"ELF\0\x01"), None);
        assert_eq!(Encoding::Latin1.encode("\u{20ac}"), None);
        assert_eq!(Encoding::Utf16Le.decode(b"\xff\xfea"), None);
    }
}
