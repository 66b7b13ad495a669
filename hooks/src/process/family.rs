//! Which processes belong to one we started, and how they are ended. See [`super`] for how they are found.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// The variable that marks the members of a family.
pub const MARK: &str = "HOOKGATE_PROCESS_ID";
/// The mark of a family whose members may outlive the process that was started ends in this.
const DETACHED: &str = "-detached";
/// How long we try to end what SIGKILL does not end: a process stuck in the kernel, or of another user.
const LONGEST_KILL: Duration = Duration::from_secs(2);

/// All families of this process: orphans come back to the process, whichever runner started them.
static FAMILIES: Mutex<Families> = Mutex::new(Families {
    list: Vec::new(),
    starts: 0,
    detached: false,
    detached_groups: VecDeque::new(),
    seen: Vec::new(),
});
/// How many groups of detached families are remembered.
const DETACHED_GROUPS: usize = 1000;

struct Families {
    list: Vec<Entry>,
    /// Grows with every start, so that who looked around can tell whether one came between.
    starts: u64,
    /// Whether any family's members may outlive their leader.
    detached: bool,
    /// The groups of ended families whose members may live on.
    detached_groups: VecDeque<i32>,
    /// Members that were seen: number and birth. Those that come back to us are ours to reap.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "without /proc nobody is seen"))]
    seen: Vec<(i32, u64)>,
}

struct Entry {
    id: u64,
    /// The process we started, which leads the family's group. `None` while it starts.
    leader: Option<i32>,
    /// When the leader started, in the kernel's clock ticks. 0 while it starts or when unknown.
    born: u64,
}

fn families() -> MutexGuard<'static, Families> {
    FAMILIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process we started and everything that came of it. Forgotten when dropped; drop it when its leader is reaped.
#[derive(Debug)]
pub(super) struct Family {
    id: u64,
    leader: i32,
    mark: String,
}

impl Family {
    /// Before its leader is started, so that nobody takes the leader for somebody else's orphan.
    pub(super) fn begin(detach: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        table::become_subreaper();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut families = families();
        families.starts += 1;
        families.detached |= detach;
        families.list.push(Entry { id, leader: None, born: 0 });
        Self { id, leader: 0, mark: format!("{}{id}{}", our_marks(), if detach { DETACHED } else { "" }) }
    }

    pub(super) fn started(&mut self, leader: u32) {
        // Process numbers are positive and fit: that is how the system hands them out.
        self.leader = i32::try_from(leader).unwrap_or(0);
        let born = table::stat(self.leader).map_or(0, |stat| stat.born);
        if let Some(entry) = families().list.iter_mut().find(|entry| entry.id == self.id) {
            (entry.leader, entry.born) = (Some(self.leader), born);
        }
    }

    pub(super) fn mark(&self) -> OsString {
        self.mark.clone().into()
    }

    /// Sends a signal to every member. How many of them were alive, as far as we can tell.
    pub(super) fn signal(&self, signal: Signal) -> usize {
        if self.leader <= 0 {
            return 0;
        }
        let Some(members) = table::members(self) else {
            // Without /proc there is the group alone, and no telling the living from those that wait to be reaped.
            let _ = killpg(Pid::from_raw(self.leader), signal);
            return 0;
        };
        // A group that a member leads is signalled as a whole, with the member that is being born now. Others may have joined
        // a group of somebody else.
        let groups: HashSet<i32> = members.iter().map(|member| member.group).collect();
        let leaders: HashSet<i32> = members.iter().map(|member| member.pid).chain([self.leader]).collect();
        for group in groups.intersection(&leaders) {
            let _ = killpg(Pid::from_raw(*group), signal);
        }
        for member in members.iter().filter(|member| !leaders.contains(&member.group)) {
            let _ = kill(Pid::from_raw(member.pid), signal);
        }
        members.len()
    }

    /// Whether a member is alive.
    pub(super) fn is_alive(&self) -> bool {
        match table::members(self) {
            Some(members) => !members.is_empty(),
            None => self.leader > 0 && killpg(Pid::from_raw(self.leader), None) != Err(Errno::ESRCH),
        }
    }

    /// Lets those live that are left. They are reaped when they end.
    pub(super) fn let_live(&self) {
        let _ = table::members(self);
        reap();
    }

    /// Kills every member and waits until they are gone. Blocks for milliseconds, in the worst case for seconds.
    pub(super) fn kill(&self) {
        let begun = std::time::Instant::now();
        let mut pause = Duration::from_millis(1);
        let mut empty_looks = 0;
        // Somebody may change parents while we look, and be missed: only the second empty look counts.
        while empty_looks < 2 && begun.elapsed() < LONGEST_KILL {
            if self.signal(Signal::SIGKILL) == 0 {
                empty_looks += 1;
                continue;
            }
            empty_looks = 0;
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        reap();
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let mut families = families();
        families.list.retain(|entry| entry.id != self.id);
        if self.mark.ends_with(DETACHED) && self.leader > 0 {
            families.detached_groups.push_back(self.leader);
            if families.detached_groups.len() > DETACHED_GROUPS {
                families.detached_groups.pop_front();
            }
        }
    }
}

/// How all marks of this gateway begin. Another gateway, or an earlier one with the same number, has others.
fn our_marks() -> &'static str {
    static OURS: OnceLock<String> = OnceLock::new();
    OURS.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        format!("{}.{now:x}-", std::process::id())
    })
}

/// Reaps orphans that came back to us and have ended. Blocks for less than a millisecond.
pub(super) fn reap() {
    table::reap();
}

/// Kills what an earlier gateway, killed itself, has left running, but for what was meant to outlive it. How many processes
/// those were. Reads all of `/proc`, which blocks for milliseconds; elsewhere nobody is found.
pub fn end_leftovers() -> usize {
    let mut ended = HashSet::new();
    // They may start others while we look.
    for _ in 0..20 {
        let left = table::leftovers();
        if left.is_empty() {
            break;
        }
        for stat in left {
            let _ = kill(Pid::from_raw(stat.pid), Signal::SIGKILL);
            ended.insert((stat.pid, stat.born));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    ended.len()
}

#[cfg(target_os = "linux")]
mod table {
    use std::collections::{HashMap, HashSet};
    use std::fs;
    use std::sync::Once;

    use nix::sys::wait::{WaitPidFlag, waitpid};
    use nix::unistd::{Pid, getpgrp, getsid};

    use super::{DETACHED, Family, MARK, families, our_marks};

    /// A line of `/proc/<pid>/stat`, see proc(5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Stat {
        pub(super) pid: i32,
        pub(super) parent: i32,
        pub(super) group: i32,
        pub(super) session: i32,
        pub(super) born: u64,
        pub(super) has_ended: bool,
    }

    /// Lets orphans among our descendants come back to us instead of to process 1.
    pub(super) fn become_subreaper() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
                tracing::warn!(%error, "processes that a hook or tool leaves behind may not be found");
            }
        });
    }

    pub(super) fn stat(pid: i32) -> Option<Stat> {
        parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name in parentheses may contain anything; what follows it does not.
    pub(super) fn parse(line: &str) -> Option<Stat> {
        let (before, rest) = (line.split_once(' ')?.0, line.rsplit_once(')')?.1);
        let mut fields = rest.split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
        let mut number = || fields.next()?.parse().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        let born = fields.nth(15)?.parse().ok()?;
        Some(Stat { pid: before.parse().ok()?, parent, group, session, born, has_ended })
    }

    /// Who has which children.
    enum Tree {
        /// The kernel tells by process.
        Asked,
        /// It does not: all processes were read.
        Read(HashMap<i32, Vec<i32>>),
    }

    impl Tree {
        fn new() -> Option<Self> {
            let own = std::process::id();
            if fs::exists(format!("/proc/{own}/task/{own}/children")).unwrap_or(false) {
                return Some(Self::Asked);
            }
            Self::read()
        }

        fn read() -> Option<Self> {
            let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
            for entry in fs::read_dir("/proc").ok()?.flatten() {
                let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
                if let Some(stat) = pid.and_then(stat) {
                    children.entry(stat.parent).or_default().push(stat.pid);
                }
            }
            Some(Self::Read(children))
        }

        fn children(&self, pid: i32) -> Vec<i32> {
            match self {
                Self::Read(children) => children.get(&pid).cloned().unwrap_or_default(),
                Self::Asked => {
                    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
                    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
                    lists
                        .flat_map(|list| {
                            list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
                        })
                        .collect()
                }
            }
        }
    }

    fn own_session() -> i32 {
        getsid(None).map_or(0, Pid::as_raw)
    }

    fn own_pid() -> i32 {
        Pid::this().as_raw()
    }

    /// The members of a family that are alive: below its leader, and below the orphans that are its own.
    pub(super) fn members(family: &Family) -> Option<Vec<Stat>> {
        let tree = Tree::new()?;
        let mut waiting: Vec<i32> =
            tree.children(own_pid()).into_iter().filter(|root| belongs(*root, family)).collect();
        let (mut members, mut seen) = (Vec::<Stat>::new(), HashSet::new());
        while let Some(pid) = waiting.pop() {
            let Some(stat) = stat(pid).filter(|_| seen.insert(pid)) else { continue };
            // A process that has ended may still have threads, and these children.
            waiting.extend(tree.children(pid));
            if !stat.has_ended {
                members.push(stat);
            }
        }
        let mut families = families();
        for member in members.iter().filter(|member| member.pid != family.leader) {
            if !families.seen.contains(&(member.pid, member.born)) {
                families.seen.push((member.pid, member.born));
            }
        }
        Some(members)
    }

    /// Whether a child of ours is the family's leader or an orphan of it.
    fn belongs(root: i32, family: &Family) -> bool {
        if root == family.leader {
            return true;
        }
        let Some(stat) = stat(root) else { return false };
        // What shares our group was started by somebody else in this process (a test): families have groups of their own.
        if stat.group == getpgrp().as_raw() {
            return false;
        }
        if stat.group == family.leader {
            return true;
        }
        if families().list.iter().any(|entry| entry.leader.is_some_and(|leader| [root, stat.group].contains(&leader))) {
            return false;
        }
        match mark_of(root) {
            Some(mark) if mark == family.mark => true,
            // Of a family that has ended, found late.
            Some(mark) => mark.starts_with(our_marks()) && !mark.ends_with(DETACHED) && !is_alive(&mark),
            // It wiped or hid its environment: ours if no other family can have borne it. In our own session it may be what
            // somebody else in this process has started.
            None if stat.session == own_session() => false,
            None => {
                let families = families();
                let could = |born: u64| born <= stat.born;
                !families.detached && families.list.iter().all(|entry| (entry.id == family.id) == could(entry.born))
            }
        }
    }

    fn is_alive(mark: &str) -> bool {
        let id = mark.trim_start_matches(our_marks()).trim_end_matches(DETACHED).parse::<u64>().ok();
        families().list.iter().any(|entry| Some(entry.id) == id)
    }

    fn mark_of(pid: i32) -> Option<String> {
        let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut variables = environ.split(|byte| *byte == 0);
        let value = variables.find_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))?;
        String::from_utf8(value.to_vec()).ok()
    }

    /// The processes that bear the mark of a gateway that is no more.
    pub(super) fn leftovers() -> Vec<Stat> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let ours = namespace(own_pid());
        let mut above = Vec::new();
        let mut next = own_pid();
        while next > 0 && !above.contains(&next) {
            above.push(next);
            next = stat(next).map_or(0, |stat| stat.parent);
        }
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| !above.contains(pid))
            .filter(|pid| mark_of(*pid).is_some_and(|mark| is_orphaned(&mark)))
            // The numbers in the marks of another container mean nothing here.
            .filter(|pid| namespace(*pid) == ours)
            .filter_map(stat)
            .filter(|stat| !stat.has_ended)
            .collect()
    }

    /// Whether the gateway that gave the mark is no more, and its processes were to end with it.
    fn is_orphaned(mark: &str) -> bool {
        let parts = mark.split_once('.').and_then(|(pid, rest)| Some((pid, rest.split_once('-')?.0)));
        let Some((pid, at)) = parts else { return false };
        let (Ok(pid), Ok(at)) = (pid.parse::<i32>(), u128::from_str_radix(at, 16)) else { return false };
        if mark.ends_with(DETACHED) || mark.starts_with(our_marks()) {
            return false;
        }
        // The number may be somebody else's by now, who was born later than the mark was given.
        let is_later = |stat: &Stat| birth(stat).is_some_and(|born| born > at / 1_000_000_000 + 2);
        pid == own_pid() || stat(pid).is_none_or(|stat| stat.has_ended || is_later(&stat))
    }

    /// When a process was born, in seconds of the clock.
    fn birth(stat: &Stat) -> Option<u128> {
        let all = fs::read_to_string("/proc/stat").ok()?;
        let boot = all.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse::<u128>().ok()?;
        // `USER_HZ` is 100 wherever Rust runs.
        Some(boot + u128::from(stat.born) / 100)
    }

    pub(super) fn reap() {
        let before = families().starts;
        let Some(tree) = Tree::new() else { return };
        let ended: Vec<Stat> =
            tree.children(own_pid()).into_iter().filter_map(stat).filter(|stat| stat.has_ended).collect();
        let session = own_session();
        let mut families = families();
        // A process that is being started is waited for by who starts it, and is not in the list yet.
        if families.starts != before || families.list.iter().any(|entry| entry.leader.is_none()) {
            return;
        }
        let leads = |pid: i32| families.list.iter().any(|entry| entry.leader == Some(pid));
        let is_adopted = |stat: &Stat| {
            !leads(stat.pid)
                && (stat.session != session
                    || leads(stat.group)
                    || families.detached_groups.contains(&stat.group)
                    || families.seen.contains(&(stat.pid, stat.born)))
        };
        for stat in ended.iter().filter(|stat| is_adopted(stat)) {
            let _ = waitpid(Pid::from_raw(stat.pid), Some(WaitPidFlag::WNOHANG));
        }
        families.seen.retain(|(pid, born)| stat(*pid).is_some_and(|stat| stat.born == *born));
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_line_of_stat_is_read_whatever_the_process_is_called() {
            let rest = "1 43 44 0 -1 4194560 96 0 0 0 0 0 0 0 20 0 1 0 98765 2342912 128";
            let stat = parse(&format!("42 (a) Z (b c) S {rest}")).unwrap();
            let numbers = (stat.pid, stat.parent, stat.group, stat.session, stat.born);
            assert_eq!((numbers, stat.has_ended), ((42, 1, 43, 44, 98765), false));
            assert!(parse(&format!("42 (x) Z {rest}")).unwrap().has_ended);
            assert_eq!(parse("42 (x"), None);
            assert!(super::stat(own_pid()).unwrap().born > 0);
        }

        #[test]
        fn a_mark_is_orphaned_when_its_gateway_is_no_more() {
            let parent = nix::unistd::getppid().as_raw();
            let now = our_marks().split_once('.').unwrap().1.trim_end_matches('-').to_owned();
            for (mark, is) in [
                (format!("{}1", our_marks()), false),
                (format!("{}.1f-1", own_pid()), true),
                ("2147483647.1f-1".to_owned(), true),
                ("2147483647.1f-1-detached".to_owned(), false),
                (format!("{parent}.{now}-1"), false),
                (format!("{parent}.1f-1"), true),
                ("1".to_owned(), false),
                ("x.1f-1".to_owned(), false),
            ] {
                assert_eq!(is_orphaned(&mark), is, "{mark}");
            }
        }

        #[test]
        fn children_are_found_also_where_the_kernel_does_not_list_them() {
            let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
            let pid = i32::try_from(child.id()).unwrap();
            for tree in [Tree::Asked, Tree::read().unwrap()] {
                assert!(tree.children(own_pid()).contains(&pid));
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// Elsewhere a family is its group: there is no way to find who left it.
#[cfg(not(target_os = "linux"))]
mod table {
    #[derive(Debug, Clone, Copy)]
    pub(super) struct Stat {
        pub(super) pid: i32,
        pub(super) group: i32,
        pub(super) born: u64,
    }

    pub(super) fn become_subreaper() {}

    pub(super) fn stat(_pid: i32) -> Option<Stat> {
        None
    }

    pub(super) fn members(_family: &super::Family) -> Option<Vec<Stat>> {
        None
    }

    pub(super) fn leftovers() -> Vec<Stat> {
        Vec::new()
    }

    pub(super) fn reap() {}
}
