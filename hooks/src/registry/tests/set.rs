//! The set of hooks changes while events come, and hooks that are always late.

use super::*;
use crate::HookKind;

/// A hook of one of the systems, told apart by its source.
struct Placed {
    inner: Scripted,
    kind: HookKind,
    source: &'static str,
    wants: &'static str,
}

impl Placed {
    fn of(kind: HookKind, source: &'static str, inner: Scripted) -> Arc<dyn Hook> {
        Arc::new(Self { inner, kind, source, wants: "" })
    }
}

#[async_trait]
impl Hook for Placed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn subscriptions(&self) -> &[String] {
        self.inner.subscriptions()
    }

    fn kind(&self) -> HookKind {
        self.kind
    }

    fn source(&self) -> String {
        self.source.to_owned()
    }

    fn wants(&self, _event: &Event, payload: &Value) -> bool {
        self.wants.is_empty() || payload["tool_name"] == self.wants
    }

    fn decides(&self) -> bool {
        self.inner.decides
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline()
    }

    fn fail_closed(&self) -> bool {
        self.inner.fail_closed
    }

    async fn observe(&self, event: &Event, payload: Arc<Value>) -> Result<(), HookError> {
        self.inner.observe(event, payload).await
    }

    async fn decide(&self, event: &Event, payload: Arc<Value>) -> Result<Option<Directive>, HookError> {
        self.inner.decide(event, payload).await
    }
}

fn step(registry: &Registry) {
    registry.emit(&Event::ON_SESSION_START, || OnSessionStart {
        session_id: "s".into(),
        model: "m".into(),
        platform: "p".into(),
    });
}

fn names(log: &Log) -> Vec<String> {
    log.lock().unwrap().drain(..).map(|(name, ..)| name).collect()
}

#[tokio::test]
async fn systems_keep_their_order_whoever_comes_first() {
    let log = Log::default();
    let hook =
        |kind, name: &'static str| Placed::of(kind, name, Scripted::decider(name, "pre_tool_call", Says(None), &log));
    let registry = Registry::new();
    registry.register(hook(HookKind::Shell, "shell"));
    registry.register(hook(HookKind::InProcess, "rust"));
    registry.register(hook(HookKind::Policy, "policy"));
    registry.replace(HookKind::Shell, vec![hook(HookKind::Shell, "other"), hook(HookKind::Shell, "shell")]);
    registry.register(hook(HookKind::InProcess, "second"));
    registry.ask_tool_call(tool_call).await;
    assert_eq!(names(&log), ["policy", "rust", "second", "other", "shell"]);
}

#[tokio::test]
async fn a_new_set_loses_no_event_and_keeps_what_stays() {
    let log = Log::default();
    let gate = Arc::new(Semaphore::new(0));
    let hook = |source, name| {
        let inner = Scripted { gate: Some(Arc::clone(&gate)), ..Scripted::observer(name, &["on_session_start"], &log) };
        Placed::of(HookKind::Shell, source, inner)
    };
    let registry = Registry::new();
    let first = registry.replace(HookKind::Shell, vec![hook("a", "stays"), hook("b", "goes")]);
    assert_eq!(first, Replaced { kept: 0, added: 2, removed: 0 });
    for _ in 0..3 {
        step(&registry);
    }
    let second = registry.replace(HookKind::Shell, vec![hook("c", "comes"), hook("a", "stays")]);
    assert_eq!(second, Replaced { kept: 1, added: 1, removed: 1 });
    step(&registry);
    gate.add_permits(100);
    assert_eq!(registry.drain(Duration::from_secs(10)).await, 0, "the one that goes is waited for, too");
    let mut told = names(&log);
    told.sort();
    assert_eq!(told, ["comes", "goes", "goes", "goes", "stays", "stays", "stays", "stays"]);
    let calls: Vec<(String, u64)> = registry.stats().into_iter().map(|stats| (stats.name, stats.calls)).collect();
    assert_eq!(calls, [("comes".to_owned(), 1), ("stays".to_owned(), 4)], "counters stay with what stays");
}

#[tokio::test]
async fn a_thousand_events_and_fifty_changes_of_the_set() {
    let log = Log::default();
    let sources = ["a", "b"];
    let registry = Registry::with_queue_limit(10_000);
    let hook = |round: usize| {
        Placed::of(HookKind::Shell, sources[round % 2], Scripted::observer("hook", &["on_session_start"], &log))
    };
    for round in 0..50 {
        registry.replace(HookKind::Shell, vec![hook(round)]);
        for _ in 0..20 {
            step(&registry);
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(registry.drain(Duration::from_secs(10)).await, 0);
    assert_eq!(names(&log).len(), 1_000);
}

#[tokio::test]
async fn a_hook_that_is_always_late_is_paused_until_it_is_resumed() {
    let log = Log::default();
    let late = || Scripted::decider("late", "pre_tool_call", Hangs, &log);
    let registry = Registry::new();
    registry.register(Placed::of(HookKind::Shell, "a", late()));
    registry.register(Placed::of(HookKind::Shell, "b", Scripted { name: "guard", ..late() }.fail_closed()));
    for _ in 0..12 {
        assert!(matches!(registry.ask_tool_call(tool_call).await.directive, Directive::Block { .. }));
    }
    let stats = registry.stats();
    assert_eq!((stats[0].paused, stats[0].calls, stats[0].timeouts), (true, 10, 10));
    assert_eq!((stats[1].paused, stats[1].calls), (false, 12), "a guard is never paused open");
    assert_eq!(stats[0].last_failure.as_deref(), Some("no answer within 20ms"));
    assert!(stats[0].last_run_at.is_some() && stats[0].p50_ms.is_some_and(|took| took >= 20.0));
    assert_eq!((registry.resume("nobody"), registry.resume("late"), registry.resume("late")), (0, 1, 0));
    registry.ask_tool_call(tool_call).await;
    assert_eq!(registry.stats()[0].calls, 11);

    for _ in 0..10 {
        registry.ask_tool_call(tool_call).await;
    }
    assert!(registry.stats()[0].paused);
    registry.replace(HookKind::Shell, vec![Placed::of(HookKind::Shell, "a", late())]);
    assert!(!registry.stats()[0].paused, "a reload resumes");
}

#[tokio::test]
async fn other_failures_and_answers_between_pause_nobody() {
    let log = Log::default();
    let registry = registry(vec![Scripted::decider("d", "pre_tool_call", Fails, &log)]);
    for _ in 0..30 {
        registry.ask_tool_call(tool_call).await;
    }
    let stats = &registry.stats()[0];
    assert_eq!((stats.paused, stats.failures), (false, 30));
}

#[tokio::test]
async fn a_hook_that_is_not_concerned_is_not_called() {
    let log = Log::default();
    let registry = Registry::new();
    for (source, wants) in [("a", "terminal"), ("b", "patch")] {
        let inner = Scripted::decider(source, "pre_tool_call", Says(None), &log);
        registry.register(Arc::new(Placed { inner, kind: HookKind::Shell, source, wants }));
    }
    let call = || PreToolCall { tool_name: "terminal".into(), ..tool_call() };
    registry.ask_tool_call(call).await;
    assert_eq!(names(&log), ["a"]);
    assert_eq!((registry.stats()[1].calls, registry.payloads()), (0, 1));
}

#[tokio::test]
async fn how_long_calls_take() {
    let log = Log::default();
    let registry = registry(vec![Scripted::observer("o", &["on_session_start"], &log)]);
    assert_eq!((registry.stats()[0].p50_ms, registry.stats()[0].last_run_at), (None, None));
    for _ in 0..300 {
        step(&registry);
        settled(&registry).await;
    }
    let stats = &registry.stats()[0];
    assert!(stats.p50_ms <= stats.p95_ms && stats.p95_ms.is_some_and(|took| took < 1_000.0), "{stats:?}");
}
