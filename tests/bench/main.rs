//! The yardstick: `cargo bench`. Starts the real binary on an empty home and prints cold start, idle memory, webhook
//! ingest beside a bare axum server in the same run, turns per second, and what one more stored session costs.
//!
//! Everything is on loopback and bounded in time and count. Compare figures of one run with each other, not with those of
//! another machine. `cargo bench -- --quick` takes a minute, is rougher and leaves the stored sessions out.
//! `--sessions` runs only those (a million take some minutes to store), `--ingest` only the webhook ingest, and `--only NAME`
//! only its rows of that name, for a profiler beside it.
#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::unwrap_used, reason = "a benchmark whose world breaks has failed")]

mod floor;
mod gateway;
mod load;
mod sessions;

use std::time::Duration;

use gateway::{Gateway, Setup};
use load::{Kind, Load};

/// What is run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// How long each load lasts.
    seconds: f64,
    /// Each figure is the median of so many runs.
    runs: usize,
    quick: bool,
    /// Only the stored sessions.
    sessions: bool,
    /// Only the ingest.
    ingest: bool,
    /// Only the rows of the ingest whose name has this in it.
    only: Option<&'static str>,
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(place) = args.iter().position(|arg| arg == "--floor") {
        return floor::serve(args[place + 1].parse().unwrap());
    }
    let quick = args.iter().any(|arg| arg == "--quick");
    let plan = Plan {
        seconds: if quick { 1.0 } else { 4.0 },
        quick,
        runs: if quick { 1 } else { 3 },
        sessions: args.iter().any(|arg| arg == "--sessions"),
        ingest: args.iter().any(|arg| arg == "--ingest" || arg == "--only"),
        only: args.iter().position(|arg| arg == "--only").map(|place| &*args[place + 1].clone().leak()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(plan));
}

async fn run(plan: Plan) {
    println!("hookgate {}, {} cores, medians of {} runs", env!("CARGO_PKG_VERSION"), cores(), plan.runs);
    if plan.sessions {
        return sessions::run().await;
    }
    if !plan.ingest {
        start_and_memory(plan).await;
    }
    ingest(plan).await;
    if !plan.ingest {
        turns(plan).await;
        if !plan.quick {
            sessions::run().await;
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn start_and_memory(plan: Plan) {
    let mut starts = Vec::new();
    let mut memory = Vec::new();
    for _ in 0..plan.runs.max(3) * 2 {
        let gateway = Gateway::start(Setup::Empty).await;
        starts.push(gateway.ready_after.as_secs_f64() * 1e3);
        tokio::time::sleep(Duration::from_millis(300)).await;
        memory.push(gateway.resident_mib());
        gateway.stop().await;
    }
    println!("\ncold start to /ready   {:>8.1} ms", median(starts));
    println!("idle memory            {:>8.1} MiB", median(memory));
}

async fn ingest(plan: Plan) {
    println!("\nwebhook ingest, 8 KB bodies, requests per second (p50, p99 in ms)");
    println!("{:<28}{:>26}{:>26}{:>26}", "", "1 connection", "16 connections", "64 connections");
    let rows = [
        ("floor, accepted", None, Kind::Good),
        ("agent route, accepted", Some("agent"), Kind::Good),
        ("deliver_only to log", Some("log"), Kind::Good),
        ("floor, bad signature", None, Kind::Bad),
        ("bad signature", Some("agent"), Kind::Bad),
    ];
    let mut floors: [[f64; 3]; 2] = [[1.0; 3]; 2];
    for (name, route, kind) in rows {
        if plan.only.is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let mut cells = Vec::new();
        for (column, connections) in [1, 16, 64].into_iter().enumerate() {
            let mut rates = Vec::new();
            let mut last = None;
            for _ in 0..plan.runs {
                let load = Load { connections, seconds: plan.seconds, kind };
                let figures = match route {
                    None => {
                        let floor = floor::Floor::start();
                        load.run(floor.port, "/webhooks/floor").await
                    }
                    Some(route) => {
                        let gateway = Gateway::start(Setup::Ingest).await;
                        let figures = load.run(gateway.webhook_port, &format!("/webhooks/{route}")).await;
                        gateway.kill();
                        figures
                    }
                };
                rates.push(figures.per_second);
                last = Some(figures);
            }
            let rate = median(rates);
            let figures = last.unwrap();
            let floor = &mut floors[usize::from(kind == Kind::Bad)][column];
            let ratio = match route {
                None => {
                    *floor = rate;
                    String::new()
                }
                Some(_) => format!(" {:.2}x", rate / *floor),
            };
            cells.push(format!("{rate:.0}{ratio} ({:.2}, {:.2})", figures.p50_ms, figures.p99_ms));
            assert_eq!(figures.unexpected, 0, "{name}: unexpected answers: {:?}", figures.statuses);
        }
        println!("{name:<28}{:>26}{:>26}{:>26}", cells[0], cells[1], cells[2]);
    }
}

async fn turns(plan: Plan) {
    println!("\nturns with an instant model, store included");
    for chats in [1, 100] {
        let mut rates = Vec::new();
        let mut waits = Vec::new();
        for _ in 0..plan.runs {
            let gateway = Gateway::start(Setup::Empty).await;
            let (per_second, p50) = gateway.turns(chats, plan.seconds).await;
            rates.push(per_second);
            waits.push(p50.as_secs_f64() * 1e3);
            gateway.stop().await;
        }
        println!(
            "{chats:>4} chats at once       {:>8.0} turns/s, {:>6.2} ms a turn (p50)",
            median(rates),
            median(waits)
        );
    }
}
