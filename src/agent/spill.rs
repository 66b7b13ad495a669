//! Context of hooks that is too long for a prompt: the whole goes into a file that tools can read, its beginning and end to
//! the model (`spec/hermes-hooks.md` §2.5).

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// `hooks.output_spill`. The default cuts nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spill {
    /// Whether anything is cut at all.
    pub enabled: bool,
    /// What one hook may add to a prompt, in characters.
    pub max_chars: usize,
    /// How much of the beginning is shown of more, in characters.
    pub preview_head: usize,
    /// And of the end.
    pub preview_tail: usize,
    /// Where the files go; each session has a directory there.
    pub directory: PathBuf,
}

impl Spill {
    /// With the reference's bounds, below `home`.
    pub fn below(home: &Path) -> Self {
        Self {
            enabled: true,
            max_chars: 10_000,
            preview_head: 500,
            preview_tail: 500,
            directory: home.join("hook_outputs"),
        }
    }

    /// The piece as the model gets it.
    pub(super) async fn fitted(&self, piece: String, session_id: &str) -> String {
        // A character has at least one byte.
        if !self.enabled || piece.len() <= self.max_chars || piece.chars().count() <= self.max_chars {
            return piece;
        }
        let chars = piece.chars().count();
        let directory = self.directory.join(plain(session_id));
        let path = directory.join(format!("{:032x}.txt", rand::random::<u128>()));
        let head: String = piece.chars().take(self.preview_head).collect();
        let tail: String = piece.chars().skip(chars.saturating_sub(self.preview_tail)).collect();
        let written = tokio::task::spawn_blocking({
            let path = path.clone();
            move || {
                DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
                crate::files::write_atomically(&path, piece.as_bytes())
            }
        });
        let place = match written.await {
            Ok(Ok(())) => format!("the whole is in {}", path.display()),
            failed => {
                let error = failed.map_or_else(|error| error.to_string(), |written| format!("{written:?}"));
                tracing::warn!(path = %path.display(), error, "What a hook adds to the prompt is cut, and could not be kept.");
                "the rest could not be kept".to_owned()
            }
        };
        format!("[A hook added {chars} characters; {place}]\n--- head ---\n{head}\n--- tail ---\n{tail}")
    }
}

/// A session's id as the name of a directory.
fn plain(session_id: &str) -> String {
    let name = session_id.replace(['/', '\\', '\0'], "_").replace("..", "_");
    if name.is_empty() { "_".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_too_long_goes_into_a_file_and_shows_its_ends() {
        let home = tempfile::tempdir().unwrap();
        let spill = Spill::below(home.path());
        let fits = "é".repeat(10_000);
        assert_eq!(spill.fitted(fits.clone(), "s").await, fits);

        let long = format!("{}{}{}", "a".repeat(500), "é".repeat(9_001), "z".repeat(500));
        let shown = spill.fitted(long.clone(), "../s/1").await;
        let directory = home.path().join("hook_outputs/__s_1");
        let file = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), long);
        assert_eq!(
            shown,
            format!(
                "[A hook added 10001 characters; the whole is in {}]\n--- head ---\n{}\n--- tail ---\n{}",
                file.display(),
                "a".repeat(500),
                "z".repeat(500)
            )
        );
        let off = Spill { enabled: false, ..spill };
        assert_eq!(off.fitted(long.clone(), "s").await, long);
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_cut_all_the_same() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("hook_outputs"), "in the way").unwrap();
        let shown = Spill::below(home.path()).fitted("x".repeat(10_001), "s").await;
        assert!(shown.starts_with("[A hook added 10001 characters; the rest could not be kept]"), "{shown}");
        assert!(shown.len() < 1_200);
    }
}
