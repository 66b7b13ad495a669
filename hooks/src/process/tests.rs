//! Processes that misbehave, and what is left of them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use super::*;

const LONG: Duration = Duration::from_secs(30);

fn sh(script: &str) -> Spec {
    Spec::new("/bin/sh").args(["-c", script]).deadline(LONG).grace(Duration::ZERO)
}

async fn run(spec: Spec) -> Finished {
    Processes::new(4).run(spec).await.unwrap()
}

/// Whether a process is there and has not ended.
fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// The process numbers that a script has written, a line each, once there are `count`.
async fn pids(file: &Path, count: usize) -> Vec<i32> {
    for _ in 0..1000 {
        let text = fs::read_to_string(file).unwrap_or_default();
        if text.ends_with('\n') && text.lines().count() >= count {
            return text.lines().map(|line| line.parse().unwrap()).collect();
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{} does not have {count} lines", file.display());
}

async fn gone(pids: &[i32]) {
    for _ in 0..1000 {
        if !pids.iter().any(|pid| lives(*pid)) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("still there: {:?}", pids.iter().filter(|pid| lives(**pid)).collect::<Vec<_>>());
}

/// Runs a test again in a process of its own, where it can count. True there.
fn alone(test: &str) -> bool {
    const VARIABLE: &str = "HOOKGATE_TEST_ALONE";
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let name = format!("process::tests::{test}");
    let output = command.args(["--exact", &name, "--nocapture"]).env(VARIABLE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

#[tokio::test]
async fn both_streams_the_exit_code_and_the_input_arrive() {
    let done = run(sh("cat; echo no >&2; exit 3").stdin("yes")).await;
    assert_eq!((done.exit, done.timed_out), (Exit::Code(3), false));
    assert_eq!((done.stdout.text(), done.stderr.text()), ("yes".to_owned(), "no\n".to_owned()));
    let done = run(sh("cat; kill -9 $$")).await;
    assert_eq!(
        (done.exit, done.exit.code(), done.exit.to_string()),
        (Exit::Signal(9), 137, "signal SIGKILL".to_owned())
    );
}

#[tokio::test]
async fn one_pipe_for_both_streams_keeps_their_order() {
    let done = run(sh("for i in 1 2 3; do echo out$i; echo err$i >&2; done").merged()).await;
    assert_eq!(done.stdout.text(), "out1\nerr1\nout2\nerr2\nout3\nerr3\n");
    assert_eq!(done.stderr.text(), "");
}

#[tokio::test]
async fn the_environment_is_what_was_asked_for_and_no_more() {
    let done = run(Spec::new("env").env("GIVEN", "1").env("HOME", "/nowhere")).await;
    let text = done.stdout.text();
    let mut names: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !name.starts_with("LC_"));
    for name in &names {
        assert!(["GIVEN", MARK].contains(name) || INHERITED.contains(name), "{name} is passed on");
    }
    assert!(names.contains(&"PATH") && names.contains(&MARK), "{names:?}");
    assert!(text.contains("\nHOME=/nowhere\n") || text.starts_with("HOME=/nowhere\n"), "{text}");
    let ours = std::env::vars().map(|(name, _)| name);
    let mut others = ours.filter(|name| !INHERITED.contains(&name.as_str()) && !name.starts_with("LC_"));
    if let Some(other) = others.next() {
        let text = run(Spec::new("env").inherit_all()).await.stdout.text();
        assert!(text.lines().any(|line| line.starts_with(&format!("{other}="))), "{other}: {text}");
    }
}

#[tokio::test]
async fn a_start_that_fails_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, text, mode) in
        [("plain", "echo hi\n", 0o755), ("shut", "#!/bin/sh\n", 0o644), ("lost", "#!/no/such\n", 0o755)]
    {
        fs::write(at(name), text).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let why = async |spec: Spec| Processes::new(1).run(spec).await.unwrap_err();
    assert!(matches!(why(Spec::new(at("plain"))).await, StartError::ExecFormat(_)));
    assert!(matches!(why(Spec::new(at("shut"))).await, StartError::NotExecutable(_)));
    assert!(matches!(why(Spec::new(at("lost"))).await, StartError::NotFound(_)));
    assert!(matches!(why(Spec::new(dir.path())).await, StartError::NotExecutable(_)));
    assert!(matches!(why(Spec::new("")).await, StartError::NotFound(_)));
    assert!(matches!(why(Spec::new("true").cwd(at("nowhere"))).await, StartError::Directory(..)));
    assert!(matches!(why(Spec::new("true").cwd(at("plain"))).await, StartError::Directory(..)));
    assert!(matches!(why(Spec::new("true").args(["a\0b"])).await, StartError::Arguments(_)));
    assert!(matches!(why(Spec::new("true").env("A=B", "")).await, StartError::Arguments(_)));
    assert!(matches!(why(Spec::new("true").args(["x".repeat(4 << 20)])).await, StartError::Arguments(_)));
    assert_eq!(why(Spec::new("no-such-command")).await.to_string(), "command not found: no-such-command");
}

#[tokio::test]
async fn input_that_nobody_reads_is_no_error() {
    let input = vec![b'x'; 3 << 20];
    let done = run(sh("exit 0").stdin(input.clone())).await;
    assert_eq!((done.exit, done.timed_out), (Exit::Code(0), false));
    let done = run(sh("exec 0<&-; sleep 0.3; echo done").stdin(input)).await;
    assert_eq!((done.exit, done.stdout.text()), (Exit::Code(0), "done\n".to_owned()));
}

#[tokio::test]
async fn who_prints_before_reading_does_not_get_stuck() {
    let script = "head -c 5000000 /dev/zero >&2; head -c 5000000 /dev/zero; wc -c >&2; echo";
    let done = run(sh(script).stdin(vec![b'x'; 5 << 20]).stderr(Keep::HeadAndTail(1000))).await;
    assert_eq!((done.exit, done.timed_out), (Exit::Code(0), false));
    assert_eq!(done.stdout.cut(), 5_000_001 - 65536);
    assert!(done.stderr.text().trim_end().ends_with("5242880"));
}

#[tokio::test]
async fn the_input_goes_on_when_the_output_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let script = "exec >&- 2>&-; cat > got";
    let done = run(sh(script).cwd(dir.path()).stdin(vec![b'x'; 1 << 20])).await;
    assert_eq!((done.exit, fs::metadata(dir.path().join("got")).unwrap().len()), (Exit::Code(0), 1 << 20));
}

#[tokio::test]
async fn a_deadline_ends_it_politely_where_there_is_a_grace() {
    let deadline = Duration::from_millis(500);
    let script = "trap 'echo bye; exit 7' TERM; echo hi; while :; do sleep 0.05; done";
    let polite = run(sh(script).deadline(deadline).grace(LONG)).await;
    assert_eq!((polite.timed_out, polite.exit, polite.stdout.text()), (true, Exit::Code(7), "hi\nbye\n".to_owned()));
    assert!(polite.duration >= deadline && polite.duration < LONG);
    let rude = run(sh(script).deadline(deadline)).await;
    assert_eq!((rude.timed_out, rude.exit, rude.stdout.text()), (true, Exit::Signal(9), "hi\n".to_owned()));
}

/// Ignores SIGTERM, and so do its child, one in a session of its own, and a daemon without its environment.
const STUBBORN: &str = r#"
    trap '' TERM
    echo $$ >> pids
    sleep 300 & echo $! >> pids
    setsid sh -c 'echo $$ >> pids; sleep 300' &
    (setsid sh -c 'echo $$ >> pids; sleep 300 & echo $! >> pids; wait' &)
    (env -i PATH="$PATH" setsid sh -c 'echo $$ >> pids; exec sleep 300' > /dev/null 2>&1 &)
"#;
#[cfg(target_os = "linux")]
const STUBBORN_COUNT: usize = 6;

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_family_that_ignores_sigterm_is_gone_at_the_deadline() {
    if !alone("a_family_that_ignores_sigterm_is_gone_at_the_deadline") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = format!("{STUBBORN}\nwhile :; do sleep 0.1; done");
    let spec = sh(&script).cwd(dir.path()).deadline(Duration::from_secs(1)).grace(Duration::from_millis(200));
    let done = run(spec).await;
    assert_eq!((done.timed_out, done.exit), (true, Exit::Signal(9)));
    let pids = pids(&dir.path().join("pids"), STUBBORN_COUNT).await;
    assert_eq!(pids.iter().filter(|pid| lives(**pid)).count(), 0, "{pids:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_an_ended_process_leaves_behind_is_killed_and_its_output_counts() {
    if !alone("what_an_ended_process_leaves_behind_is_killed_and_its_output_counts") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = format!("{STUBBORN}\nwhile [ $(wc -l < pids) -lt {STUBBORN_COUNT} ]; do sleep 0.05; done; echo done");
    let done = run(sh(&script).cwd(dir.path())).await;
    assert_eq!((done.timed_out, done.exit, done.stdout.text()), (false, Exit::Code(0), "done\n".to_owned()));
    let pids = pids(&dir.path().join("pids"), STUBBORN_COUNT).await;
    assert_eq!(pids.iter().filter(|pid| lives(**pid)).count(), 0, "{pids:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_dropped_run_is_killed() {
    if !alone("a_dropped_run_is_killed") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let processes = Processes::new(1);
    let spec = sh(&format!("{STUBBORN}\nsleep 300")).cwd(dir.path());
    let task = tokio::spawn({
        let processes = processes.clone();
        async move { processes.run(spec).await }
    });
    let pids = pids(&dir.path().join("pids"), STUBBORN_COUNT).await;
    assert_eq!(processes.running(), 1);
    task.abort();
    gone(&pids).await;
    // Its place is free once it is reaped.
    assert_eq!(processes.run(sh("echo next")).await.unwrap().stdout.text(), "next\n");
}

#[tokio::test]
async fn the_family_of_another_run_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (processes, file) = (Processes::new(8), dir.path().join("pids"));
    let script = "(setsid sh -c 'echo $$ >> pids; sleep 300' &) ; cat";
    let long = processes.start(sh(script).cwd(dir.path()), 100).await.unwrap();
    let pids = pids(&file, 1).await;
    for _ in 0..10 {
        processes.run(sh("(setsid sleep 300 &)")).await.unwrap();
    }
    assert!(lives(pids[0]) && long.ended().is_none());
    drop(long);
    gone(&pids).await;
}

#[tokio::test]
async fn a_detached_process_lives_on_and_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let processes = Processes::new(2);
    let done = processes.run(sh("sleep 300 & echo $! > pids; echo done").cwd(dir.path()).detach()).await.unwrap();
    assert_eq!((done.exit, done.stdout.text()), (Exit::Code(0), "done\n".to_owned()));
    processes.run(sh("true")).await.unwrap();
    let pids = pids(&dir.path().join("pids"), 1).await;
    assert!(lives(pids[0]));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pids[0]), nix::sys::signal::Signal::SIGKILL).unwrap();
    // Nobody runs anything: still it is reaped.
    for _ in 0..1000 {
        if !Path::new(&format!("/proc/{}", pids[0])).exists() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("it stays a zombie");
}

#[tokio::test]
async fn output_through_a_process_substitution_is_not_lost() {
    let Some(bash) = find_program("bash") else { return };
    let script = "exec > >(sleep 0.1; cat); echo through";
    let done = run(Spec::new(bash).args(["-c", script])).await;
    assert_eq!(done.stdout.text(), "through\n");
}

#[tokio::test]
async fn places_are_taken_in_order_and_waiting_does_not_count() {
    let processes = Processes::new(1);
    let order = std::sync::Mutex::new(Vec::new());
    let one = async |number: i32| {
        let spec = sh("sleep 0.3").deadline(Duration::from_secs(10));
        let done = processes.run(spec).await.unwrap();
        order.lock().unwrap().push(number);
        assert!(!done.timed_out && done.duration < Duration::from_secs(10));
    };
    tokio::join!(biased; one(1), one(2), one(3), one(4));
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4]);
    let busy = processes.start(sh("cat"), 10).await.unwrap();
    let refused = processes.start(sh("cat"), 10).await.unwrap_err();
    assert_eq!(refused.to_string(), "too many processes are running: at most 1 may");
    busy.kill().await;
}

#[tokio::test]
async fn one_in_the_background_is_talked_to() {
    let processes = Processes::new(1);
    let script = "echo ready >&2; while read line; do echo \"got $line\"; done; echo end; exit 4";
    let background = processes.start(sh(script).merged(), 8).await.unwrap();
    let read = async |until: &str| {
        let mut text = String::new();
        for _ in 0..1000 {
            background.read(|unread| {
                text.push_str(&String::from_utf8_lossy(unread.bytes));
                (unread.bytes.len(), ())
            });
            if text.ends_with(until) {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        text
    };
    assert_eq!(read("ready\n").await, "ready\n");
    assert_eq!(background.write(b"a\n", LONG).await.unwrap(), 2);
    assert_eq!(read("got a\n").await, "got a\n");
    assert_eq!((background.ended(), background.unread()), (None, 0));
    background.write(b"long line\n", LONG).await.unwrap();
    background.close_stdin().await;
    let ended = background.wait().await;
    assert_eq!((ended.exit, ended.killed, ended.timed_out), (Exit::Code(4), false, false));
    background.read(|unread| {
        assert_eq!((unread.bytes, unread.lost, unread.is_complete), (&b"ine\nend\n"[..], 10, true));
        (0, ())
    });
    assert!(background.write(b"x", LONG).await.is_err());
}

#[tokio::test]
async fn one_in_the_background_ends_when_told_at_its_deadline_or_with_its_owner() {
    let processes = Processes::new(3);
    let background = processes.start(sh("sleep 300"), 10).await.unwrap();
    assert_eq!(background.write(&vec![b'x'; 1 << 20], Duration::from_millis(200)).await.unwrap(), 65536);
    let ended = background.kill().await;
    assert_eq!((ended.exit, ended.killed, ended.timed_out), (Exit::Signal(9), true, false));
    assert_eq!(background.kill().await, ended);

    let background = processes.start(sh("sleep 300").deadline(Duration::from_millis(100)), 10).await.unwrap();
    let ended = background.wait().await;
    assert_eq!((ended.killed, ended.timed_out), (false, true));

    let dir = tempfile::tempdir().unwrap();
    let background = processes.start(sh("echo $$ > pids; sleep 300").cwd(dir.path()), 10).await.unwrap();
    let pids = pids(&dir.path().join("pids"), 1).await;
    drop(background);
    gone(&pids).await;
}

/// When the gateway stops, its runtime goes down with everything on it.
#[test]
fn what_runs_when_the_runtime_goes_down_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let (background, pids) = first.block_on(async {
        let processes = Processes::new(2);
        let script = "setsid sleep 300 & echo $! >> pids; echo $$ >> pids; sleep 300";
        let background = processes.start(sh(script).cwd(dir.path()), 10).await.unwrap();
        (background, pids(&dir.path().join("pids"), 2).await)
    });
    drop(first);
    runtime().block_on(gone(&pids));
    drop(background);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_runs_leave_no_descriptor_and_no_zombie() {
    if !alone("two_hundred_runs_leave_no_descriptor_and_no_zombie") {
        return;
    }
    let processes = Processes::new(8);
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let children = || {
        let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
        let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
        lists.collect::<String>()
    };
    // What the runtime itself opens.
    processes.run(sh("true")).await.unwrap();
    let before = descriptors();
    let runs: Vec<_> = (0..200)
        .map(|number| {
            let processes = processes.clone();
            tokio::spawn(async move {
                let _ = match number % 5 {
                    0 => processes.run(Spec::new("no-such-command").stdin("x")).await,
                    1 => processes.run(sh("true").cwd("/no/such/directory")).await,
                    2 => processes.run(sh("(setsid sleep 300 &) ; echo done").merged()).await,
                    3 => processes.run(sh("sleep 300").deadline(Duration::from_millis(20)).stdin("x")).await,
                    _ => {
                        let _ = tokio::time::timeout(Duration::from_millis(20), processes.run(sh("sleep 300"))).await;
                        return;
                    }
                };
            })
        })
        .collect();
    for run in runs {
        run.await.unwrap();
    }
    for _ in 0..500 {
        if children().is_empty() && descriptors() <= before {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("children: {:?}; descriptors: {before}, then {}", children(), descriptors());
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_megabytes_of_output_take_no_memory() {
    if !alone("hundreds_of_megabytes_of_output_take_no_memory") {
        return;
    }
    let full = std::env::var("HOOKGATE_ACCEPTANCE").is_ok_and(|value| value == "full");
    let bytes: u64 = if full { 500 << 20 } else { 100 << 20 };
    let resident = || {
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let processes = Processes::new(2);
    processes.run(sh("true")).await.unwrap();
    let before = resident();
    let spec = sh(&format!("yes | head -c {bytes}")).merged().stdout(Keep::HeadAndTail(50_000));
    let mut run = pin!(processes.run(spec));
    let mut most = 0;
    let done = loop {
        tokio::select! {
            done = &mut run => break done.unwrap(),
            () = sleep(Duration::from_millis(10)) => most = most.max(resident()),
        }
    };
    assert_eq!((done.exit, done.stdout.cut()), (Exit::Code(0), bytes - 50_000));
    let grown = most.max(resident()).saturating_sub(before);
    assert!(grown < 20 << 20, "grown by {grown} bytes");
}
