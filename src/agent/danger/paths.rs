//! Paths as a command line names them: which are never deleted, and which are not written without asking.

use std::path::{Component, Path, PathBuf};

use super::words::UNKNOWN;
use super::{Place, glob_of};

/// Deleted by nobody, neither themselves nor all they hold.
const SYSTEM: [&str; 22] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/usr",
    "/var",
    "/Users",
    "/System",
    "/Library",
    "/Applications",
];
/// Beginnings of the names of whole disks and their parts.
const DISKS: [&str; 10] = ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "dm-", "md"];
const SHELL_FILES: [&str; 11] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".kshrc",
    "config.fish",
];
const CREDENTIALS: [&str; 8] =
    [".netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf", "credentials.json", "id_rsa"];
const CREDENTIAL_DIRECTORIES: [&str; 6] = [".aws", ".gnupg", ".kube", ".docker", ".azure", ".gcloud"];

/// The user's home, or one that stands for it.
fn home_of(place: Place<'_>) -> &Path {
    place.home.unwrap_or(Path::new("/home/user"))
}

/// A path of the line, absolute where that can be known, without `.`, `..` and repeated slashes.
fn normal(path: &str, place: Place<'_>) -> PathBuf {
    let home = home_of(place);
    let joined = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        // Somebody's home.
        Some(rest) => Path::new("/home").join(rest),
        None => place.cwd.unwrap_or(Path::new("./")).join(path),
    };
    let mut normal = PathBuf::new();
    for part in joined.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if normal.parent().is_some() || !normal.as_os_str().is_empty() => {
                if normal.file_name().is_some_and(|name| name != "..") {
                    normal.pop();
                } else if !normal.has_root() {
                    normal.push("..");
                }
            }
            part => normal.push(part),
        }
    }
    normal
}

/// What must never be deleted with all below it, if the path names it or everything in it.
pub(super) fn protected(path: &str, place: Place<'_>) -> Option<String> {
    if path.is_empty() || path.contains(UNKNOWN) && !path.starts_with('/') {
        return None;
    }
    let path = normal(path, place);
    let text = path.to_string_lossy().into_owned();
    let home = home_of(place).to_string_lossy().into_owned();
    let all = SYSTEM.iter().map(|one| (*one).to_owned()).chain([home]);
    // `/usr/*` is as much as `/usr`.
    let whole =
        ["/*", "/.*", "/{*,.*}", "/."].iter().find_map(|end| text.strip_suffix(end)).map(|parent| match parent {
            "" => "/".to_owned(),
            parent => parent.to_owned(),
        });
    let named = whole.as_deref().unwrap_or(&text);
    let has_glob = named.contains(['*', '?', '[']);
    let pattern = has_glob.then(|| glob_of(&without_sets(named))).flatten();
    all.into_iter().find(|one| {
        one.eq_ignore_ascii_case(named)
            || pattern
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(one) && one.matches('/').count() == named.matches('/').count())
    })
}

/// `[e]tc` may be `etc`: a set of characters counts as any one.
pub(super) fn without_sets(glob: &str) -> String {
    let (mut out, mut in_set) = (String::new(), false);
    for c in glob.chars() {
        match c {
            '[' if !in_set => in_set = true,
            ']' if in_set => {
                in_set = false;
                out.push('?');
            }
            _ if in_set => {}
            c => out.push(c),
        }
    }
    out
}

/// Whether the path is a whole disk or a part of one.
pub(super) fn is_disk(path: &str) -> bool {
    let name = path.trim_start_matches('/').strip_prefix("dev/");
    name.is_some_and(|name| {
        let name = name.trim_start_matches("mapper/");
        DISKS.iter().any(|disk| name.to_ascii_lowercase().starts_with(disk)) || path.contains("/dev/mapper/")
    })
}

/// Why writing the path is asked about. `in_place` is for editors of what is there, which leave `.env` files alone.
pub(super) fn sensitive(path: &str, place: Place<'_>, in_place: bool) -> Option<&'static str> {
    let path = normal(path, place);
    let names: Vec<String> = path.components().map(|part| part.as_os_str().to_string_lossy().to_lowercase()).collect();
    let last = names.last().map(String::as_str).unwrap_or_default();
    let below = |directory: &str| names.iter().rev().skip(1).any(|name| name == directory);
    let system = ["/etc", "/private/etc", "/boot", "/usr", "/bin", "/sbin", "/lib", "/sys", "/proc"];
    let text = path.to_string_lossy();
    let may_be = |system: &&str| {
        let beginning: Vec<&str> = text.split('/').take(system.matches('/').count() + 1).collect();
        text.contains(['*', '?', '['])
            && glob_of(&without_sets(&beginning.join("/"))).is_some_and(|glob| glob.is_match(system))
    };
    if system.iter().any(|system| path.starts_with(system) || may_be(system)) {
        return Some("write to a system file");
    }
    if below(".ssh") || last == "authorized_keys" {
        return Some("write to SSH keys or settings");
    }
    if SHELL_FILES.contains(&last) {
        return Some("write to a shell start-up file");
    }
    if CREDENTIALS.contains(&last) || CREDENTIAL_DIRECTORIES.iter().any(|directory| below(directory)) {
        return Some("write to credentials");
    }
    if below(".hookgate") || below(".hermes") {
        return Some("write to the gateway's own files");
    }
    if below("cron.d") || below("crontabs") || below("systemd") || below("launchagents") || below("launchdaemons") {
        return Some("write to what is started by the system");
    }
    let is_env = last == ".env" || last.starts_with(".env.") || last == "config.yaml";
    (is_env && !in_place).then_some("write to a settings file with secrets")
}
