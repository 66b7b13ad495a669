use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::routing::get;

use super::*;
use crate::agent::tools::testing::{call, turn};

type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// A search engine that answers so, and what it was asked.
async fn engine(status: u16, answer: String) -> (Url, Seen) {
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    let handler = get(async move |uri: Uri, headers: HeaderMap| {
        let key = headers.get(header::AUTHORIZATION).map(|key| key.to_str().unwrap().to_owned());
        noted.lock().unwrap().push((uri.to_string(), key));
        (StatusCode::from_u16(status).unwrap(), [(header::LOCATION, "/elsewhere")], answer)
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/search?lang=en", listener.local_addr().unwrap())).unwrap();
    let app = Router::new().route("/search", handler);
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, seen)
}

async fn search(url: Url, key: Option<&str>, settings: WebSettings, args: Value) -> Result<Value, ToolError> {
    let tool = WebSearch::new(url, key.map(SecretString::from), settings).unwrap();
    assert!(!tool.has_effects());
    call(&tool, &turn("/"), args).await
}

fn results(number: usize) -> String {
    let one =
        |n| json!({ "title": format!("T{n}\u{1b}[1m"), "url": format!("https://e.example/{n}"), "content": "a\n b" });
    json!({ "query": "x", "results": (0..number).map(one).collect::<Vec<_>>() }).to_string()
}

#[tokio::test]
async fn results_are_told_as_many_as_wanted() {
    let (url, seen) = engine(200, results(30)).await;
    let settings = WebSettings::default();
    let found = search(url.clone(), Some(" k-1 "), settings.clone(), json!({ "query": "a&b ü" })).await.unwrap();
    assert_eq!(found["results"].as_array().unwrap().len(), 5);
    assert_eq!(found["results"][1], json!({ "title": "T1[1m", "url": "https://e.example/1", "snippet": "a b" }));
    for (limit, told) in [(json!(2), 2), (json!("7"), 7), (json!(500), 20), (json!(0), 1)] {
        let args = json!({ "query": "x", "limit": limit });
        let found = search(url.clone(), None, settings.clone(), args).await.unwrap();
        assert_eq!(found["results"].as_array().unwrap().len(), told, "{limit}");
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0], ("/search?lang=en&q=a%26b+%C3%BC&format=json".to_owned(), Some("Bearer k-1".to_owned())));
    assert_eq!(seen[1].1, None);
}

#[tokio::test]
async fn what_cannot_be_opened_or_has_no_room_is_left_out() {
    let odd = json!({ "results": [
        { "title": "no address" }, { "url": "javascript:x" }, { "url": "not one" }, { "url": format!("https://e/{}", "x".repeat(3000)) },
        { "url": "https://ok.example/", "title": null, "content": "s".repeat(5000) }, { "url": "https://ok.example/2" },
    ] });
    let (url, _) = engine(200, odd.to_string()).await;
    let found = search(url.clone(), None, WebSettings::default(), json!({ "query": "x" })).await.unwrap();
    assert_eq!(found["results"].as_array().unwrap().len(), 2);
    assert_eq!(found["results"][0]["snippet"].as_str().unwrap().len(), LONGEST_SNIPPET);
    let settings = WebSettings { output_bytes: 1030, ..WebSettings::default() };
    let found = search(url, None, settings, json!({ "query": "x" })).await.unwrap();
    assert_eq!((found["results"].as_array().unwrap().len(), found["note"].is_string()), (1, true));
}

#[tokio::test]
async fn an_engine_that_does_not_answer_well_is_told_in_one_sentence() {
    for (status, answer, told) in [
        (200, "<html>".to_owned(), "results in JSON"),
        (200, "{}".to_owned(), "results in JSON"),
        (200, "x".repeat(3 << 20), "too long"),
        (302, String::new(), "redirects"),
        (403, String::new(), "refuses"),
        (500, String::new(), "answers 500"),
    ] {
        let (url, seen) = engine(status, answer).await;
        let error = search(url, None, WebSettings::default(), json!({ "query": "x" })).await.unwrap_err();
        assert!(error.to_string().contains(told), "{status}: {error}");
        assert_eq!(seen.lock().unwrap().len(), 1);
    }
    let nobody = Url::parse("http://127.0.0.1:9/search").unwrap();
    let error = search(nobody.clone(), None, WebSettings::default(), json!({ "query": "x" })).await.unwrap_err();
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    assert!(search(nobody.clone(), None, WebSettings::default(), json!({ "query": "  " })).await.is_err());
    crate::redact::add([&"web-search-key-1".into()]);
    let error = search(nobody.clone(), None, WebSettings::default(), json!({ "query": "web-search-key-1" })).await;
    assert!(error.unwrap_err().to_string().contains("holds a secret"));
    assert!(WebSearch::new(nobody, Some("a\nb".into()), WebSettings::default()).is_err());
    assert!(WebSearch::new(Url::parse("ftp://h/").unwrap(), None, WebSettings::default()).is_err());
}

#[tokio::test]
async fn a_slow_engine_is_not_waited_for() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let settings = WebSettings { timeout: Duration::from_millis(200), ..WebSettings::default() };
    let error = search(url, None, settings, json!({ "query": "x" })).await.unwrap_err();
    assert!(matches!(error, ToolError::TimedOut(_)), "{error}");
}
