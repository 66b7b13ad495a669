//! One gateway per home: a lock of the kernel on `<home>/hookgate.lock`. It ends with the process that holds it, however
//! that ends, so a file left behind means nothing. Also tells whether the reference gateway uses the same home.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;

const FILE: &str = "hookgate.lock";

/// Somebody who only looks holds the lock for an instant, and a new holder writes its id just after locking.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Why a home could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another gateway runs on it.
    #[error("another hookgate uses this home")]
    Held {
        /// Its process id, if it could be read.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {FILE}: {0}")]
    Io(#[from] io::Error),
}

/// The right to run the gateway of a home, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

#[derive(Serialize, Deserialize)]
struct Record {
    pid: u32,
    /// Unix milliseconds.
    #[serde(default)]
    started_at: i64,
}

impl HomeLock {
    /// Takes the lock and writes `{"pid": …, "started_at": …}` (Unix milliseconds) into the file. Waits at most a fifth
    /// of a second for those who only look.
    pub fn acquire(home: &Path) -> Result<Self, LockError> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(home.join(FILE))?;
        for look in 1..=LOOKS {
            match file.try_lock() {
                Ok(()) => {
                    let record = Record { pid: std::process::id(), started_at: Clock::system().now() };
                    let text = serde_json::to_string(&record).map_err(io::Error::other)?;
                    // Written over before it is cut, which needs no new space on a full disk.
                    file.rewind()?;
                    file.write_all(text.as_bytes())?;
                    file.set_len(text.len() as u64)?;
                    return Ok(Self { _file: file });
                }
                Err(TryLockError::WouldBlock) if look == LOOKS => break,
                Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
        Err(LockError::Held { pid: read_pid(&mut file) })
    }

    /// The process that holds the lock of a home now. `None` when nobody holds it, whatever the file says.
    pub fn holder(home: &Path) -> Option<u32> {
        held_by(&home.join(FILE))?
    }
}

/// A warning, when a reference gateway runs on this home: judged by its lock (`gateway.lock`), else by `gateway.pid` when
/// that names a living gateway process. Two gateways may take each other's messages.
pub fn reference_gateway(home: &Path) -> Option<String> {
    let named = File::open(home.join("gateway.pid")).ok().and_then(|mut file| read_pid(&mut file));
    let pid = match held_by(&home.join("gateway.lock")) {
        Some(pid) => pid.or(named),
        None => Some(named.filter(|pid| is_gateway(*pid))?),
    };
    let process = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    Some(format!(
        "another gateway{process} already runs on {}; stop it, or both will answer the same messages",
        home.display()
    ))
}

/// Whether somebody holds the lock of a file, and the process id in it.
fn held_by(path: &Path) -> Option<Option<u32>> {
    let mut file = File::open(path).ok()?;
    for _ in 0..LOOKS {
        // Shared, so that two who look do not take each other for the holder.
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {}
            Ok(()) | Err(TryLockError::Error(_)) => return None,
        }
        if let Some(pid) = read_pid(&mut file) {
            return Some(Some(pid));
        }
        thread::sleep(PAUSE);
    }
    Some(None)
}

/// The process id in a lock or pid file: a bare number, or an object with `pid`.
fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(64 * 1024).read_to_string(&mut text).ok()?;
    let text = text.trim();
    text.parse().ok().or_else(|| serde_json::from_str::<Record>(text).ok().map(|record| record.pid))
}

/// Whether a process lives and, where the system tells, looks like a gateway: ids are used again.
fn is_gateway(pid: u32) -> bool {
    let Ok(raw) = i32::try_from(pid) else { return false };
    if raw <= 0 || pid == std::process::id() {
        return false;
    }
    let lives = !matches!(nix::sys::signal::kill(nix::unistd::Pid::from_raw(raw), None), Err(nix::errno::Errno::ESRCH));
    match std::fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(line) => lives && String::from_utf8_lossy(&line).contains("gateway"),
        Err(_) => lives,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_locked_once_and_the_holder_is_known() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(HomeLock::holder(home.path()), None);
        let lock = HomeLock::acquire(home.path()).unwrap();
        assert_eq!(HomeLock::holder(home.path()), Some(std::process::id()));
        match HomeLock::acquire(home.path()) {
            Err(LockError::Held { pid }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(lock);
        assert_eq!(HomeLock::holder(home.path()), None);
        HomeLock::acquire(home.path()).unwrap();
    }

    #[test]
    fn a_file_left_behind_holds_nothing() {
        let home = tempfile::tempdir().unwrap();
        for left in
            ["", "{\"pid\":1,\"started_at\":5}", "not json, and longer than what is written over it".repeat(9).as_str()]
        {
            std::fs::write(home.path().join(FILE), left).unwrap();
            assert_eq!(HomeLock::holder(home.path()), None);
            let _lock = HomeLock::acquire(home.path()).unwrap();
            let text = std::fs::read_to_string(home.path().join(FILE)).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&text).unwrap().pid, std::process::id());
        }
    }

    #[test]
    fn looking_does_not_stop_a_start() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(FILE), "").unwrap();
        let looker = File::open(home.path().join(FILE)).unwrap();
        looker.try_lock_shared().unwrap();
        let waiting = thread::spawn({
            let home = home.path().to_owned();
            move || HomeLock::acquire(&home).map(|_| ())
        });
        thread::sleep(PAUSE);
        drop(looker);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn the_reference_gateway_is_seen_by_its_lock_and_not_by_stale_files() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(reference_gateway(home.path()), None);
        std::fs::write(home.path().join("gateway.pid"), "{\"pid\": 4194304, \"kind\": \"hermes-gateway\"}").unwrap();
        std::fs::write(home.path().join("gateway.lock"), "").unwrap();
        assert_eq!(reference_gateway(home.path()), None, "no such process");
        std::fs::write(home.path().join("gateway.pid"), "1").unwrap();
        assert_eq!(reference_gateway(home.path()), None, "process 1 is no gateway");
        let lock = File::open(home.path().join("gateway.lock")).unwrap();
        lock.lock().unwrap();
        assert!(reference_gateway(home.path()).is_some_and(|text| text.contains("(process 1)")), "the lock is held");
        drop(lock);
        assert_eq!(reference_gateway(home.path()), None);
    }
}
