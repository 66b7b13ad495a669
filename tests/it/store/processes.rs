//! Other processes: those that read beside the gateway, and the gateway that is killed. This test binary plays them.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use hookgate::store::UncertainSends;

use super::*;

const ROLE: &str = "HOOKGATE_TEST_ROLE";
const HOME: &str = "HOOKGATE_TEST_HOME";
const URL: &str = "HOOKGATE_TEST_URL";

/// Starts this binary as the process that `role` names.
fn start(role: &str, home: &Home) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::processes::another_process", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(HOME, home.path())
        .env(URL, &home.url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What the others do; nothing when it runs as a test.
#[tokio::test]
async fn another_process() {
    let var = |name| std::env::var(name);
    let (Ok(role), Ok(home), Ok(url)) = (var(ROLE), var(HOME), var(URL)) else { return };
    match role.as_str() {
        "list" => {
            for _ in 0..15 {
                let listing = SqlStore::open_read_only(Path::new(&home), &url).await.unwrap();
                listing.sessions(100).await.unwrap();
                listing.deliveries(None, 100).await.unwrap();
                let counts = listing.counts().await.unwrap();
                listing.close().await;
                println!("\nread {}", counts.inbox_waiting);
            }
        }
        "accept" => {
            let opened = SqlStore::open(OpenOptions::new(home, url)).await.unwrap();
            for n in 0.. {
                opened.store.accept(message("1", n)).await.unwrap();
                println!("\naccepted {n}");
            }
        }
        other => panic!("no role {other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_may_read_beside_the_gateway() {
    for home in stores() {
        let store = home.open().await;
        let mut readers: Vec<_> = (0..3).map(|_| start("list", &home)).collect();
        let mut n = 0;
        while readers.iter_mut().any(|reader| reader.try_wait().unwrap().is_none()) {
            store.accept(message("1", n)).await.unwrap();
            n += 1;
        }
        for reader in readers {
            let output = reader.wait_with_output().unwrap();
            assert!(output.status.success());
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text.lines().filter(|line| line.starts_with("read ")).count(), 15);
        }
        store.probe().await.unwrap();
        assert_eq!(usize::try_from(store.counts().await.unwrap().inbox_waiting).unwrap(), n);
        store.check().await.unwrap();
    }
}

#[tokio::test]
async fn what_was_accepted_survives_a_kill() {
    for home in stores() {
        let mut accepted = 0;
        for round in 0..2 {
            let mut gateway = start("accept", &home);
            let lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
            let mut seen = 0;
            for line in lines.map_while(Result::ok) {
                let Some(n) = line.strip_prefix("accepted ") else { continue };
                accepted = accepted.max(n.parse::<usize>().unwrap() + 1);
                seen += 1;
                if seen == 40 * (round + 1) {
                    gateway.kill().unwrap();
                }
            }
            gateway.wait().unwrap();
            assert!(seen >= 40 * (round + 1));
        }
        let store = home.open().await;
        let waiting = store.recover(UncertainSends::Resend, &|_| 0).await.unwrap().inbox;

        assert!(waiting.len() >= accepted, "{} stored of {accepted} accepted", waiting.len());
        for (n, (id, _)) in waiting.iter().enumerate() {
            assert_eq!(store.waiting(*id).await.unwrap().unwrap().accepted.message.message_id, n.to_string());
        }
    }
}
