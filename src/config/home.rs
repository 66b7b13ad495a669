//! Which directory is the home, and that it is there.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::{Problem, Severity};

/// The home directory, which exists and can be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// Absolute.
    pub path: PathBuf,
    /// One line to print, when the home of another program is used.
    pub note: Option<String>,
}

/// Finds the home directory: `flag` (`--home`) › `HOOKGATE_HOME` › `HERMES_HOME` › `~/.hookgate` if it exists ›
/// `~/.hermes` if it exists › `~/.hookgate` (`spec/decisions.md` §1). A directory that does not exist is created with
/// mode 0700, also a named one.
///
/// # Errors
/// When it cannot be created or listed, or is not a directory; the problem says as which user and what to do.
pub fn resolve_home(flag: Option<&Path>, environment: &BTreeMap<String, String>) -> Result<Home, Problem> {
    let variable = |name: &str| environment.get(name).filter(|value| !value.trim().is_empty());
    let (path, origin) = if let Some(flag) = flag {
        (flag.to_owned(), "--home")
    } else if let Some((name, value)) =
        ["HOOKGATE_HOME", "HERMES_HOME"].into_iter().find_map(|name| variable(name).map(|value| (name, value)))
    {
        (from_tilde(value, variable("HOME").map(String::as_str)), name)
    } else {
        let Some(user_home) = variable("HOME") else {
            return Err(problem("HOME", "HOME is not set, so there is no home directory", "name one with --home DIR"));
        };
        let user_home = Path::new(user_home);
        let (own, reference) = (user_home.join(".hookgate"), user_home.join(".hermes"));
        if !own.exists() && reference.is_dir() {
            let note =
                format!("using the existing home {} (HOOKGATE_HOME or --home choose another)", reference.display());
            return Ok(Home { note: Some(note), ..prepare(reference, "HOME")? });
        }
        (own, "HOME")
    };
    prepare(path, origin)
}

/// The path that `value` means where `~` stands for the user's home.
pub(super) fn from_tilde(value: &str, user_home: Option<&str>) -> PathBuf {
    match (value.strip_prefix('~'), user_home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            Path::new(home).join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(value),
    }
}

fn prepare(path: PathBuf, origin: &str) -> Result<Home, Problem> {
    let path = std::path::absolute(&path).unwrap_or(path);
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
    if let Err(error) = created {
        let message = if path.exists() && !path.is_dir() {
            format!("{} is not a directory", path.display())
        } else {
            format!("cannot create the home directory {}{}: {}", path.display(), as_user(&error), reason(&error))
        };
        return Err(problem(origin, &message, &remedy(&error, &path)));
    }
    match fs::read_dir(&path) {
        Ok(_) => Ok(Home { path, note: None }),
        Err(error) => {
            let message =
                format!("cannot read the home directory {}{}: {}", path.display(), as_user(&error), reason(&error));
            Err(problem(origin, &message, &remedy(&error, &path)))
        }
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        io::ErrorKind::NotADirectory => "a part of the path is not a directory".to_owned(),
        io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        _ => error.to_string(),
    }
}

/// Who is refused, where that matters.
pub(super) fn as_user(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::PermissionDenied {
        format!(" as user {} (group {})", nix::unistd::geteuid(), nix::unistd::getegid())
    } else {
        String::new()
    }
}

/// What to do about a file that this user may not read.
pub(super) fn remedy_for_file(error: &io::Error, path: &Path) -> Option<String> {
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    (error.kind() == io::ErrorKind::PermissionDenied)
        .then(|| format!("give it to that user with `chown {user}:{group} {}`", path.display()))
}

fn remedy(error: &io::Error, path: &Path) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "give it to that user with `chown -R {}:{} {}`, or choose another with --home DIR",
            nix::unistd::geteuid(),
            nix::unistd::getegid(),
            path.display()
        ),
        _ => "choose another with --home DIR".to_owned(),
    }
}

fn problem(origin: &str, message: &str, suggestion: &str) -> Problem {
    Problem {
        severity: Severity::Error,
        origin: origin.to_owned(),
        line: 0,
        column: 0,
        path: String::new(),
        message: message.to_owned(),
        suggestion: Some(suggestion.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn environment(pairs: &[(&str, &Path)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, path)| ((*name).to_owned(), path.to_str().unwrap().to_owned())).collect()
    }

    #[test]
    fn the_first_of_the_list_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let dir = |name: &str| root.path().join(name);
        let all = environment(&[("HOME", root.path()), ("HOOKGATE_HOME", &dir("own")), ("HERMES_HOME", &dir("ref"))]);
        assert_eq!(resolve_home(Some(&dir("flag")), &all).unwrap().path, dir("flag"));
        assert_eq!(resolve_home(None, &all).unwrap().path, dir("own"));
        let all = environment(&[("HOME", root.path()), ("HERMES_HOME", &dir("ref"))]);
        assert_eq!(resolve_home(None, &all).unwrap().path, dir("ref"));
        let blank = environment(&[("HOME", root.path()), ("HOOKGATE_HOME", Path::new(" "))]);
        assert_eq!(resolve_home(None, &blank).unwrap(), Home { path: dir(".hookgate"), note: None });
        let tilde = environment(&[("HOME", root.path()), ("HOOKGATE_HOME", Path::new("~/deep/er"))]);
        assert_eq!(resolve_home(None, &tilde).unwrap().path, dir("deep/er"));
    }

    #[test]
    fn an_existing_home_of_the_reference_is_used_and_said() {
        let root = tempfile::tempdir().unwrap();
        let only_home = environment(&[("HOME", root.path())]);
        fs::create_dir(root.path().join(".hermes")).unwrap();
        let home = resolve_home(None, &only_home).unwrap();
        assert_eq!(home.path, root.path().join(".hermes"));
        assert!(home.note.unwrap().contains(".hermes"));
        fs::create_dir(root.path().join(".hookgate")).unwrap();
        assert_eq!(resolve_home(None, &only_home).unwrap(), Home { path: root.path().join(".hookgate"), note: None });
    }

    #[test]
    fn a_new_home_is_for_its_owner_only() {
        let root = tempfile::tempdir().unwrap();
        let home = resolve_home(None, &environment(&[("HOME", root.path())])).unwrap();
        assert_eq!(fs::metadata(home.path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn what_cannot_be_a_home_says_why_and_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let error = resolve_home(Some(&file), &BTreeMap::new()).unwrap_err();
        assert_eq!(error.message, format!("{} is not a directory", file.display()));
        assert_eq!(error.suggestion.as_deref(), Some("choose another with --home DIR"));
        let error = resolve_home(Some(&file.join("below")), &BTreeMap::new()).unwrap_err();
        assert!(error.message.ends_with("a part of the path is not a directory"), "{error}");
        let error = resolve_home(None, &BTreeMap::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "HOME: HOME is not set, so there is no home directory (name one with --home DIR)"
        );
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(as_user(&denied).starts_with(" as user "));
        assert!(remedy(&denied, Path::new("/data")).starts_with("give it to that user with `chown -R "));
    }
}
