//! What a person must be told: one full sentence in their terms, with what to do.

use std::io;
use std::path::Path;

use crate::files::directory_of;

/// An error for the person at the terminal or in the chat.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UserError {
    /// One full sentence, with what to do.
    pub message: String,
    /// The process's exit code: 1 failed, 2 usage, 78 unusable configuration.
    pub exit_code: u8,
}

impl UserError {
    /// It did not work.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_code: 1 }
    }

    /// A file of the home cannot be written. A full disk may have room at the next start; the rest is for a person to
    /// change.
    pub fn unwritable(path: &Path, error: &io::Error) -> Self {
        let what = format!("{} cannot be written: {error}.", path.display());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::failed(format!("{what} Make room on its disk, then start again."))
            }
            io::ErrorKind::PermissionDenied => {
                let owner = format!("{}:{}", nix::unistd::geteuid(), nix::unistd::getegid());
                let place = if path.is_dir() { path } else { directory_of(path) };
                Self::config(format!(
                    "{what} Give it to this user with `chown -R {owner} {}`, or choose another home with --home.",
                    place.display()
                ))
            }
            _ => Self::config(format!("{what} Make it writable for this user, or choose another home with --home.")),
        }
    }

    /// The configuration cannot be used (`EX_CONFIG`).
    pub fn config(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_code: 78 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_matter_of_configuration() {
        let path = Path::new("/home/a/.hookgate");
        let full = UserError::unwritable(path, &io::ErrorKind::StorageFull.into());
        assert_eq!((full.exit_code, full.message.contains("Make room")), (1, true), "{full}");
        let home = tempfile::tempdir().unwrap();
        let owner = format!("{}:{}", nix::unistd::geteuid(), nix::unistd::getegid());
        let chown = format!("`chown -R {owner} {}`", home.path().display());
        for path in [home.path().to_owned(), home.path().join("console.json")] {
            let denied = UserError::unwritable(&path, &io::ErrorKind::PermissionDenied.into());
            assert_eq!((denied.exit_code, denied.message.contains(&chown)), (78, true), "{denied}");
        }
        let refused = UserError::unwritable(path, &io::ErrorKind::ReadOnlyFilesystem.into());
        assert_eq!((refused.exit_code, refused.message.contains("--home")), (78, true), "{refused}");
    }
}
