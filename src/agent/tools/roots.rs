//! Where the file tools may go: inside the configured roots with links resolved, to ordinary files, and never to what holds
//! the gateway's own secrets. What is opened is looked at once more, so that a link made in between leads nowhere else.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use nix::fcntl::OFlag;
use regex::{Regex, RegexBuilder};

use super::ToolError;

/// Files of a home that no tool touches, whatever the roots are; and everything below these directories.
const PRIVATE: [&str; 6] =
    [".env", "config.yaml", "console.json", "hooks.json", "webhook_subscriptions.json", "shell-hooks-allowlist.json"];
const PRIVATE_PREFIXES: [&str; 2] = ["hookgate.db", ".env."];
/// What is in them runs as the gateway, or says who may talk to it.
const PRIVATE_DIRECTORIES: [&str; 5] = ["hooks", "pairing", "platforms", "plugins", "profiles"];
/// What is no file of anybody's.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];

/// `files` in the configuration.
#[derive(Debug)]
pub struct FileRules {
    roots: Vec<PathBuf>,
    deny: Vec<Regex>,
    home: PathBuf,
    /// How much of a file or a search the model is told at once.
    pub(super) output_bytes: usize,
}

/// The most links that are followed, as the kernel does it.
const MOST_LINKS: usize = 40;

impl FileRules {
    /// `roots` begin in the turn's working directory where they are relative; `deny` are globs of absolute paths; `home` is
    /// the gateway's.
    ///
    /// # Errors
    /// When a glob cannot be read.
    pub fn new(roots: Vec<PathBuf>, deny: &[String], home: &Path, output_bytes: usize) -> anyhow::Result<Self> {
        let deny = deny.iter().map(|glob| glob_of(glob)).collect::<anyhow::Result<_>>()?;
        let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        Ok(Self { roots, deny, home, output_bytes })
    }

    /// The real path of something that is there. What is not within the rules is refused as such whether it is there or not.
    pub(super) fn existing(&self, cwd: &Path, path: &str) -> Result<PathBuf, ToolError> {
        let wanted = absolute(cwd, path)?;
        let real = wanted.canonicalize();
        let place = match &real {
            Ok(real) => Some(real.clone()),
            Err(_) => place_of(&wanted, MOST_LINKS),
        };
        self.check(cwd, path, &place.unwrap_or(wanted))?;
        real.map_err(|error| ToolError::Failed(format!("{path}: {}", told(&error))))
    }

    /// The real path of something that may be made: its deepest directory that is there decides.
    pub(super) fn wanted(&self, cwd: &Path, path: &str) -> Result<PathBuf, ToolError> {
        let wanted = absolute(cwd, path)?;
        if wanted.symlink_metadata().is_ok() {
            return self.existing(cwd, path);
        }
        let named = wanted.file_name().and_then(|_| place_of(&wanted, MOST_LINKS));
        let real = named.ok_or_else(|| ToolError::Failed(format!("{path} names no file")))?;
        self.check(cwd, path, &real)?;
        Ok(real)
    }

    /// Opens an ordinary file for reading, without waiting for anybody behind it; and what it is.
    pub(super) fn open(&self, cwd: &Path, path: &str) -> Result<(File, Metadata, PathBuf), ToolError> {
        let real = self.existing(cwd, path)?;
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits();
        let failed = |error: std::io::Error| ToolError::Failed(format!("{path}: {}", told(&error)));
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&real).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        self.check_kind(cwd, path, &metadata)?;
        // A directory on the way may have become a link meanwhile.
        if let Some(opened) = path_of(&file) {
            self.check(cwd, path, &opened)?;
        }
        Ok((file, metadata, real))
    }

    /// Whether a real path is within the rules. Cheap: also asked for each file of a search.
    pub(super) fn check(&self, cwd: &Path, path: &str, real: &Path) -> Result<(), ToolError> {
        let refused = |why: &str| Err(ToolError::Failed(format!("{path} {why}")));
        if SYSTEM.iter().any(|system| real.starts_with(system)) {
            return refused("is part of the system and no file; use another way");
        }
        if self.is_private(real) {
            return refused("belongs to the gateway and is read by nobody else");
        }
        let root = |root: &PathBuf| {
            let root = if root.is_absolute() { root.clone() } else { cwd.join(root) };
            root.canonicalize().is_ok_and(|root| real.starts_with(root))
        };
        if !self.roots.iter().any(root) {
            return refused("is outside of the directories that file tools may use (files.roots)");
        }
        let text = real.to_string_lossy();
        if self.deny.iter().any(|glob| glob.is_match(&text)) {
            return refused("is forbidden by the operator (files.deny)");
        }
        Ok(())
    }

    /// Only ordinary files are read, and none that is one of the home's own under another name.
    pub(super) fn check_kind(&self, _cwd: &Path, path: &str, metadata: &Metadata) -> Result<(), ToolError> {
        if metadata.is_dir() {
            return Err(ToolError::Failed(format!(
                "{path} is a directory; list it with the terminal, or search in it"
            )));
        }
        if !metadata.is_file() {
            return Err(ToolError::Failed(format!("{path} is no ordinary file")));
        }
        // Only what has several names can be one of the home's files.
        if metadata.nlink() > 1 && self.is_private_inode(metadata) {
            return Err(ToolError::Failed(format!("{path} belongs to the gateway and is read by nobody else")));
        }
        Ok(())
    }

    fn is_private(&self, real: &Path) -> bool {
        let Ok(inside) = real.strip_prefix(&self.home) else { return false };
        let mut names = inside.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
            _ => None,
        });
        let (Some(first), rest) = (names.next(), names.next()) else { return false };
        match rest {
            Some(_) => PRIVATE_DIRECTORIES.contains(&first.as_str()),
            None => {
                PRIVATE.contains(&first.as_str())
                    || PRIVATE_DIRECTORIES.contains(&first.as_str())
                    || PRIVATE_PREFIXES.iter().any(|prefix| first.starts_with(prefix))
            }
        }
    }

    fn is_private_inode(&self, metadata: &Metadata) -> bool {
        let Ok(entries) = self.home.read_dir() else { return false };
        entries
            .flatten()
            .filter(|entry| self.is_private(&entry.path()))
            .any(|entry| entry.metadata().is_ok_and(|own| own.dev() == metadata.dev() && own.ino() == metadata.ino()))
    }
}

fn absolute(cwd: &Path, path: &str) -> Result<PathBuf, ToolError> {
    if path.trim().is_empty() {
        return Err(ToolError::Failed("the argument `path` is empty".to_owned()));
    }
    if path.contains('\0') {
        return Err(ToolError::Failed("the argument `path` holds a NUL".to_owned()));
    }
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    Ok(match path.strip_prefix("~/").and_then(|rest| Some(home()?.join(rest))) {
        Some(path) => path,
        None => cwd.join(path),
    })
}

/// Where a path leads that need not be there: through links, to the deepest directory that is, and on from it by name.
fn place_of(path: &Path, links: usize) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Some(real);
    }
    let (parent, name) = (path.parent()?, path.file_name()?);
    match path.read_link() {
        Ok(target) => place_of(&parent.join(target), links.checked_sub(1)?),
        Err(_) => Some(place_of(parent, links)?.join(name)),
    }
}

/// Where an open file is now, where the system tells.
fn path_of(file: &File) -> Option<PathBuf> {
    use std::os::fd::AsRawFd as _;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok().filter(|path| path.is_absolute())
}

/// A system's error in a few words.
pub(super) fn told(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "the gateway may not read or write it".to_owned(),
        _ => error.to_string(),
    }
}

/// A glob over a whole path or name: `*` and `?` also match `/`.
pub(super) fn glob_of(glob: &str) -> anyhow::Result<Regex> {
    let mut pattern = String::from("^(?:");
    for c in glob.chars() {
        match c {
            '*' => pattern.push_str(".*"),
            '?' => pattern.push('.'),
            c => pattern.push_str(&regex::escape(&c.to_string())),
        }
    }
    pattern.push_str(")$");
    Ok(RegexBuilder::new(&pattern).dot_matches_new_line(true).size_limit(1 << 20).build()?)
}

/// Work on files, away from the runtime. A turn that goes away leaves it to its end.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let ended = |error| ToolError::Failed(format!("the work on the file was ended: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(ended)?
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    struct Place {
        _dir: tempfile::TempDir,
        cwd: PathBuf,
        home: PathBuf,
        outside: PathBuf,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let [cwd, home, outside] = ["work", "home", "outside"].map(|name| base.join(name));
        for path in [&cwd, &home, &outside, &home.join("pairing"), &cwd.join("sub")] {
            fs::create_dir(path).unwrap();
        }
        for (file, text) in [
            (cwd.join("a.txt"), "a"),
            (cwd.join("sub/b.txt"), "b"),
            (outside.join("secret.txt"), "secret"),
            (home.join(".env"), "TOKEN=x"),
            (home.join("hookgate.db-wal"), "x"),
            (home.join("pairing/codes.json"), "x"),
            (home.join("notes.txt"), "notes"),
        ] {
            fs::write(file, text).unwrap();
        }
        symlink(&outside, cwd.join("out")).unwrap();
        symlink(outside.join("secret.txt"), cwd.join("link.txt")).unwrap();
        symlink(outside.join("new.txt"), cwd.join("dangling.txt")).unwrap();
        symlink(cwd.join("sub"), cwd.join("inside")).unwrap();
        Place { _dir: dir, cwd, home, outside }
    }

    fn rules(place: &Place, roots: &[&str], deny: &[&str]) -> FileRules {
        let deny: Vec<String> = deny.iter().map(ToString::to_string).collect();
        FileRules::new(roots.iter().map(PathBuf::from).collect(), &deny, &place.home, 50_000).unwrap()
    }

    #[test]
    fn only_what_is_inside_is_reached() {
        let place = place();
        let rules = rules(&place, &["."], &["*/sub/deni*"]);
        for path in ["a.txt", "./sub/../a.txt", "inside/b.txt", "sub/b.txt"] {
            assert!(rules.open(&place.cwd, path).is_ok(), "{path}");
        }
        let absolute = place.outside.join("secret.txt").display().to_string();
        for path in [
            "out/secret.txt",
            "link.txt",
            "../outside/secret.txt",
            "../../etc/passwd",
            &absolute,
            "",
            "a\0b",
            "/proc/self/environ",
            "/dev/zero",
            "/sys/kernel/mm",
            "nothing.txt",
            "sub",
        ] {
            assert!(rules.open(&place.cwd, path).is_err(), "{path:?}");
        }
        for path in ["new.txt", "sub/new/deep.txt", "inside/new.txt"] {
            assert!(rules.wanted(&place.cwd, path).is_ok_and(|real| real.starts_with(&place.cwd)), "{path}");
        }
        for path in
            ["dangling.txt", "out/new.txt", "../new.txt", "sub/../../new.txt", "sub/denied.txt", "/tmp/../etc/x"]
        {
            assert!(rules.wanted(&place.cwd, path).is_err(), "{path}");
        }
        assert!(rules.wanted(&place.cwd, "link.txt").is_err());
        assert!(FileRules::new(Vec::new(), &[], &place.home, 1).unwrap().open(&place.cwd, "a.txt").is_err(), "no root");
    }

    #[test]
    fn nobody_learns_what_is_outside() {
        let place = place();
        symlink("dangling.txt", place.cwd.join("twice.txt")).unwrap();
        symlink("endless.txt", place.cwd.join("endless.txt")).unwrap();
        let rules = rules(&place, &["."], &[]);
        for path in
            ["../outside/secret.txt", "../outside/nothing.txt", "out/nothing/at/all", "dangling.txt", "twice.txt"]
        {
            let told = rules.open(&place.cwd, path).unwrap_err().to_string();
            assert_eq!(told, format!("{path} is outside of the directories that file tools may use (files.roots)"));
        }
        let told = rules.open(&place.cwd, "sub/nothing.txt").unwrap_err().to_string();
        assert_eq!(told, "sub/nothing.txt: there is no such file");
        assert!(rules.open(&place.cwd, "endless.txt").is_err() && rules.wanted(&place.cwd, "endless.txt").is_err());
        assert!(rules.wanted(&place.cwd, "nothing/..").unwrap_err().to_string().contains("names no file"));
    }

    #[test]
    fn the_homes_own_files_are_nobodys_under_any_name() {
        let place = place();
        fs::hard_link(place.home.join(".env"), place.cwd.join("innocent.txt")).unwrap();
        symlink(place.home.join(".env"), place.cwd.join("linked.txt")).unwrap();
        let rules = rules(&place, &["/"], &[]);
        for path in [
            ".env",
            "hookgate.db-wal",
            "hookgate.db",
            "pairing/codes.json",
            "config.yaml",
            ".ENV",
            "hooks/x/handler.py",
        ] {
            let path = place.home.join(path).display().to_string();
            assert!(rules.open(&place.cwd, &path).is_err() && rules.wanted(&place.cwd, &path).is_err(), "{path}");
        }
        assert!(rules.open(&place.cwd, "innocent.txt").is_err() && rules.open(&place.cwd, "linked.txt").is_err());
        assert!(rules.open(&place.cwd, &place.home.join("notes.txt").display().to_string()).is_ok());
        let told = rules.open(&place.cwd, "/proc/self/environ").unwrap_err().to_string();
        assert!(told.contains("part of the system"), "{told}");
    }

    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let place = place();
        nix::unistd::mkfifo(&place.cwd.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let rules = rules(&place, &["."], &[]);
        assert!(rules.open(&place.cwd, "fifo").unwrap_err().to_string().contains("no ordinary file"));
    }

    proptest! {
        #[test]
        fn no_path_escapes(parts in prop::collection::vec(prop::sample::select(vec!["..", ".", "out", "sub", "inside", "link.txt", "a.txt", "secret.txt", "dangling.txt", "new", "~", ""]), 1..7), from_root: bool) {
            let place = place();
            let rules = rules(&place, &["."], &[]);
            let path = parts.join("/");
            let path = if from_root { format!("{}/{path}", place.cwd.display()) } else { path };
            if let Ok((_, _, real)) = rules.open(&place.cwd, &path) {
                prop_assert!(real.starts_with(&place.cwd), "{path}: {}", real.display());
            }
            if let Ok(real) = rules.wanted(&place.cwd, &path) {
                prop_assert!(real.starts_with(&place.cwd), "{path}: {}", real.display());
            }
        }
    }
}
