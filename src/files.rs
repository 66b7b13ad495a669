//! Files of the home that are replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
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

/// The directory a file is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
