//! Files of the home that are replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rand::RngCore as _;

/// Replaces the file behind `path` (a link is followed) in one step, mode 0600, on disk when it returns.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let target = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => {
            fs::canonicalize(path).or_else(|_| fs::read_link(path).map(|link| directory_of(path).join(link)))?
        }
        _ => path.to_owned(),
    };
    let directory = directory_of(&target);
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.{}.{:08x}.tmp", std::process::id(), rand::rng().next_u32()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(content)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        // Written by root for a gateway of another user, it must stay that user's.
        let owner = fs::metadata(&target).or_else(|_| fs::metadata(directory))?;
        let own = file.metadata()?;
        if (owner.uid(), owner.gid()) != (own.uid(), own.gid()) {
            let _ = std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()));
        }
        file.sync_all()?;
        match fs::rename(&temporary, &target) {
            // A single file mounted into a container cannot be replaced, only rewritten.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                let mut file = OpenOptions::new().write(true).truncate(true).open(&target)?;
                file.write_all(content)?;
                file.sync_all()?;
                fs::remove_file(&temporary)
            }
            renamed => renamed,
        }?;
        File::open(directory)?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// No file of a home that people write comes near this size.
const LARGEST: u64 = 64 << 20;

/// The content of a file of the home. What would never end (a named pipe, a device, a file of more than 64 MiB) is an
/// error, not a wait.
pub(crate) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    // A named pipe without a writer opens at once so, and is then seen for what it is.
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    if !(kind.is_file() || kind.is_char_device() && path.canonicalize()? == Path::new("/dev/null")) {
        let what = if kind.is_dir() { "it is a directory, not a file" } else { "it is not a regular file" };
        return Err(std::io::Error::new(ErrorKind::InvalidInput, what));
    }
    let mut content = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST {
        return Err(std::io::Error::new(ErrorKind::FileTooLarge, "it is larger than 64 MiB"));
    }
    Ok(content)
}

/// The same as text.
pub(crate) fn read_text(path: &Path) -> std::io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| std::io::Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// The directory a file is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_would_never_end_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink("/dev/null", at("null")).unwrap();
        assert_eq!(read_text(&at("file")).unwrap(), "text");
        assert_eq!(read_text(&at("link")).unwrap(), "text");
        assert_eq!(read_text(&at("null")).unwrap(), "", "a way to say that there is none");

        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        symlink("/dev/zero", at("zero")).unwrap();
        File::create(at("large")).unwrap().set_len(LARGEST + 1).unwrap();
        for (name, why) in [
            ("pipe", "it is not a regular file"),
            ("zero", "it is not a regular file"),
            ("", "it is a directory, not a file"),
            ("large", "it is larger than 64 MiB"),
        ] {
            assert_eq!(read(&at(name)).unwrap_err().to_string(), why);
        }
        assert_eq!(read(&at("absent")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
