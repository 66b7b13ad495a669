//! The floor: a bare axum server that reads a body, checks GitHub's signature, parses the JSON and answers 202. It stores
//! nothing. Runs as a process of its own, like the gateway.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::load::SECRET;

/// A running floor.
pub(crate) struct Floor {
    child: Child,
    pub(crate) port: u16,
}

impl Floor {
    pub(crate) fn start() -> Self {
        let port = free_port();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--floor", &port.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(2));
        }
        Self { child, port }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Serves until it is killed, with as many threads as the gateway uses.
pub(crate) fn serve(port: u16) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let app = Router::new().route("/webhooks/{route}", post(receive));
        axum::serve(listener, app).await.unwrap();
    });
}

async fn receive(headers: HeaderMap, body: Bytes) -> (StatusCode, Json<Value>) {
    let signature = headers.get("x-hub-signature-256").and_then(|value| value.to_str().ok()?.strip_prefix("sha256="));
    let signature = signature.and_then(|hex| hex::decode(hex).ok()).unwrap_or_default();
    let mut mac = <Hmac<Sha256>>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(&body);
    if mac.verify_slice(&signature).is_err() {
        return (StatusCode::UNAUTHORIZED, Json(json!({ "error": "Invalid signature" })));
    }
    let payload: Value = match serde_json::from_slice(&body) {
        Ok(payload) => payload,
        Err(_) => return (StatusCode::BAD_REQUEST, Json(json!({ "error": "Cannot parse body" }))),
    };
    (StatusCode::ACCEPTED, Json(json!({ "status": "accepted", "event": payload["action"] })))
}
