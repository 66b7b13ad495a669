//! The real binary on a home of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::load::SECRET;

/// What the home holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    /// Nothing but free ports: the echo answers.
    Empty,
    /// The routes `agent` and `log`, without rate limits. The model of `agent` never answers, so that only the ingest
    /// is measured; what is accepted waits in the store.
    Ingest,
}

/// A running gateway.
pub(crate) struct Gateway {
    child: Child,
    home: TempDir,
    url: String,
    token: String,
    pub(crate) webhook_port: u16,
    /// From the start of the process until `/ready` said so.
    pub(crate) ready_after: Duration,
}

impl Gateway {
    pub(crate) async fn start(setup: Setup) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config.yaml"), config(setup)).unwrap();
        Self::start_at(home).await
    }

    /// On a home that is there already.
    pub(crate) async fn start_at(home: TempDir) -> Self {
        let file = home.path().join("console.json");
        let _ = std::fs::remove_file(&file);
        let began = Instant::now();
        let child = Command::new(env!("CARGO_BIN_EXE_hookgate"))
            .args(["gateway", "run", "--log", "error", "--home"])
            .arg(home.path())
            .env_clear()
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (url, webhooks, token) = loop {
            if let Some(found) = read(&file) {
                break found;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "the gateway did not start");
            std::thread::sleep(Duration::from_micros(200));
        };
        let webhook_port: u16 = webhooks.rsplit(':').next().unwrap().parse().unwrap();
        while !is_ready(webhook_port) {
            assert!(began.elapsed() < Duration::from_secs(30), "the gateway did not become ready");
            std::thread::sleep(Duration::from_micros(200));
        }
        Self { child, home, url, token, webhook_port, ready_after: began.elapsed() }
    }

    /// What it keeps in memory.
    pub(crate) fn resident_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1_024.0
    }

    /// SIGTERM, and its end; the home stays.
    pub(crate) async fn stop(mut self) -> TempDir {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        while self.child.try_wait().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::mem::replace(&mut self.home, TempDir::new().unwrap())
    }

    /// Ends it at once.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// So many local chats ask one question after the other, each when it has the answer to the last: turns per second, and
    /// the median time of one.
    pub(crate) async fn turns(&self, chats: usize, seconds: f64) -> (f64, Duration) {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let ask = |chat: usize| {
            let http = http.clone();
            async move {
                let url = format!("{}/api/events?chat=c{chat}", self.url);
                let stream = http.get(url).bearer_auth(&self.token).send().await.unwrap();
                let mut events = stream.bytes_stream();
                wait_for(&mut events, "ready").await;
                let mut times = Vec::new();
                for number in 0_u64.. {
                    let asked = Instant::now();
                    if asked >= end {
                        break;
                    }
                    let say = json!({ "chat": format!("c{chat}"), "id": format!("m{number}"), "text": "hello" });
                    let request = http.post(format!("{}/api/messages", self.url)).bearer_auth(&self.token).json(&say);
                    assert_eq!(request.send().await.unwrap().status(), 202);
                    wait_for(&mut events, "\"type\":\"message\"").await;
                    times.push(asked.elapsed());
                }
                times
            }
        };
        let mut times: Vec<Duration> =
            futures_util::future::join_all((0..chats).map(ask)).await.into_iter().flatten().collect();
        times.sort();
        (times.len() as f64 / seconds, times[times.len() / 2])
    }
}

async fn wait_for(
    events: &mut (impl futures_util::Stream<Item = reqwest::Result<axum::body::Bytes>> + Unpin),
    text: &str,
) {
    while let Some(chunk) = events.next().await {
        if String::from_utf8_lossy(&chunk.unwrap()).contains(text) {
            return;
        }
    }
    panic!("the stream ended before {text}");
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(setup: Setup) -> String {
    let mut yaml = String::from("console: {port: 0}\nplatforms:\n  webhook:\n    extra:\n      port: 0\n");
    if setup == Setup::Ingest {
        let prompt = "'{repository.full_name}: {action} #{issue.number} {issue.title}'";
        let route = |more: &str| format!("{{secret: {SECRET}, rate_limit: 4000000000, prompt: {prompt}{more}}}");
        yaml.push_str(&format!(
            "      routes:\n        agent: {}\n        log: {}\n",
            route(""),
            route(", deliver_only: true")
        ));
        // Nobody listens there: a listener that is never accepted from keeps the one turn waiting.
        yaml.push_str("limits: {turns: 1, failed_signatures_per_minute: 1000000}\n");
        yaml.push_str(&format!("model: {{provider: openai, default: none, base_url: '{}'}}\n", silent_model()));
    }
    yaml
}

/// An address that takes connections and never answers, for the whole run.
fn silent_model() -> String {
    let listener = Box::leak(Box::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap()));
    format!("http://{}/v1", listener.local_addr().unwrap())
}

fn read(file: &Path) -> Option<(String, String, String)> {
    let value: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    Some((text("url")?, text("webhook_url")?, text("token")?))
}

fn is_ready(port: u16) -> bool {
    use std::io::{Read as _, Write as _};
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut answer = String::new();
    stream.write_all(b"GET /ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 200")
}
