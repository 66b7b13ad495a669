//! A closed-loop load of signed deliveries over kept-alive connections: each connection sends its next request when it has
//! the answer to the last. Bodies are signed beforehand; every request has a new delivery id.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// The routes' secret.
pub(crate) const SECRET: &str = "the-secret-of-the-benchmark";
/// Different bodies.
const BODIES: usize = 256;
/// The size of one, about.
const BODY_BYTES: usize = 8_192;
/// What is sent before anything is counted.
const WARM_UP: f64 = 0.3;

/// Whether the signatures fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Good,
    Bad,
}

/// How much is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) seconds: f64,
    pub(crate) kind: Kind,
}

/// What came of it.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Answers that are neither success (good) nor 401 (bad).
    pub(crate) unexpected: u64,
}

struct Body {
    text: String,
    signature: String,
}

/// An event of GitHub's shape, filled up to its size with what real ones have: many short strings.
fn bodies(kind: Kind) -> Vec<Body> {
    let body = |number: usize| {
        let mut labels = Vec::new();
        let event = |labels: &Vec<serde_json::Value>| {
            json!({
                "action": "opened",
                "issue": { "number": 1_000 + number, "title": "The build breaks on a clean machine",
                    "user": { "login": "octocat", "id": 583_231 }, "labels": labels },
                "repository": { "full_name": "octo/hello-world", "private": false },
            })
            .to_string()
        };
        while event(&labels).len() < BODY_BYTES {
            let id = labels.len();
            labels.push(json!({ "id": id, "name": format!("label-{id}"), "color": "d73a4a", "default": true,
                "url": format!("https://api.github.com/repos/octo/hello-world/labels/label-{id}") }));
        }
        let text = event(&labels);
        let mut mac = <Hmac<Sha256>>::new_from_slice(SECRET.as_bytes()).unwrap();
        mac.update(text.as_bytes());
        if kind == Kind::Bad {
            mac.update(b"?");
        }
        Body { signature: hex::encode(mac.finalize().into_bytes()), text }
    };
    (0..BODIES).map(body).collect()
}

#[derive(Default)]
struct Counted {
    times: Vec<u32>,
    statuses: BTreeMap<u16, u64>,
}

impl Load {
    /// Sends to this port and path.
    pub(crate) async fn run(self, port: u16, path: &str) -> Figures {
        let bodies: &'static [Body] = Box::leak(bodies(self.kind).into_boxed_slice());
        let path: &'static str = Box::leak(path.to_owned().into_boxed_str());
        let begin = Instant::now() + Duration::from_secs_f64(WARM_UP);
        let end = begin + Duration::from_secs_f64(self.seconds);
        let local = LocalSet::new();
        let tasks: Vec<_> = (0..self.connections)
            .map(|connection| local.spawn_local(drive(port, path, connection, bodies, begin, end)))
            .collect();
        local.await;
        let mut all = Counted::default();
        for task in tasks {
            let counted = task.await.unwrap();
            all.times.extend(counted.times);
            for (status, count) in counted.statuses {
                *all.statuses.entry(status).or_default() += count;
            }
        }
        all.times.sort_unstable();
        let at = |share: f64| {
            let place = (all.times.len() as f64 * share) as usize;
            f64::from(all.times.get(place).copied().unwrap_or_default()) / 1e3
        };
        let expected = |status: u16| if self.kind == Kind::Bad { status == 401 || status == 429 } else { status < 300 };
        Figures {
            per_second: all.times.len() as f64 / self.seconds,
            p50_ms: at(0.50),
            p99_ms: at(0.99),
            unexpected: all.statuses.iter().filter(|(status, _)| !expected(**status)).map(|(_, count)| count).sum(),
            statuses: all.statuses,
        }
    }
}

async fn drive(port: u16, path: &str, connection: usize, bodies: &[Body], begin: Instant, end: Instant) -> Counted {
    let mut counted = Counted::default();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut request, mut answer) = (Vec::with_capacity(16_384), Vec::with_capacity(2_048));
    for number in 0_usize.. {
        let now = Instant::now();
        if now >= end {
            break;
        }
        let body = &bodies[(connection * 31 + number) % bodies.len()];
        request.clear();
        request.extend_from_slice(
            format!(
                "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nx-github-event: issues\r\n\
                 x-github-delivery: {connection}-{number}\r\nx-hub-signature-256: sha256={}\r\ncontent-length: {}\r\n\r\n",
                body.signature,
                body.text.len()
            )
            .as_bytes(),
        );
        request.extend_from_slice(body.text.as_bytes());
        let sent = Instant::now();
        stream.write_all(&request).await.unwrap();
        let status = read_answer(&mut stream, &mut answer).await;
        if now >= begin {
            counted.times.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
            *counted.statuses.entry(status).or_default() += 1;
        }
    }
    counted
}

/// Reads one answer to its end; its status.
async fn read_answer(stream: &mut TcpStream, answer: &mut Vec<u8>) -> u16 {
    answer.clear();
    loop {
        let mut chunk = [0; 2_048];
        let read = stream.read(&mut chunk).await.unwrap();
        assert!(read > 0, "the server closed the connection: {}", String::from_utf8_lossy(answer));
        answer.extend_from_slice(&chunk[..read]);
        let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
        let length: usize = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .map_or(0, |value| value.trim().parse().unwrap());
        if answer.len() >= head + 4 + length {
            return text.split(' ').nth(1).unwrap().parse().unwrap();
        }
    }
}
