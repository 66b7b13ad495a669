use std::collections::HashMap;

use axum::Router;
use axum::body::Body as Sent;
use axum::http::{Response as Answer, StatusCode, header};
use axum::routing::get;

use super::*;
use crate::agent::tools::testing::{call, turn};

/// Names as a test has them.
struct Names(HashMap<&'static str, Vec<&'static str>>);

#[async_trait]
impl Lookup for Names {
    async fn lookup(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let known = self.0.get(name).ok_or_else(|| io::Error::other("no such name"))?;
        Ok(known.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect())
    }
}

fn names() -> Arc<dyn Lookup> {
    let names = [
        ("inside.example", vec!["127.0.0.1"]),
        ("inside6.example", vec!["::1", "fd00::1", "::ffff:10.0.0.1"]),
        ("mixed.example", vec!["127.0.0.1", "8.8.8.8"]),
        ("proxy.corp", vec!["127.0.0.1"]),
    ];
    Arc::new(Names(names.into_iter().collect()))
}

fn answer(status: u16, kind: &str, body: impl Into<Sent>) -> Answer<Sent> {
    let status = StatusCode::from_u16(status).unwrap();
    Answer::builder().status(status).header(header::CONTENT_TYPE, kind).body(body.into()).unwrap()
}

fn redirect(to: &str) -> Answer<Sent> {
    Answer::builder().status(302).header(header::LOCATION, to).body(Sent::empty()).unwrap()
}

async fn serve(app: Router) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    port
}

fn settings(port: u16) -> WebSettings {
    WebSettings { allow_private: vec![format!("127.0.0.1:{port}")], ..WebSettings::default() }
}

async fn extract(settings: WebSettings, url: &str) -> Result<Value, ToolError> {
    let tool = WebExtract::with_lookup(settings, names()).unwrap();
    assert!(!tool.has_effects());
    call(&tool, &turn("/"), json!({ "url": url })).await
}

async fn refused(settings: WebSettings, url: &str, told: &str) {
    let error = extract(settings, url).await.unwrap_err();
    assert!(error.to_string().contains(told), "{url}: {error}");
}

/// Serves one body as one kind, and reads it.
async fn read(kind: &'static str, body: impl Into<Vec<u8>>) -> Result<Value, ToolError> {
    let body = body.into();
    let port = serve(Router::new().route("/dir/page", get(async move || answer(200, kind, body.clone())))).await;
    extract(settings(port), &format!("http://127.0.0.1:{port}/dir/page")).await
}

#[tokio::test]
async fn a_page_is_read_with_its_title_and_links() {
    let page = r##"<!DOCTYPE html><html><head><title>A &amp; B
        page</title><style>p { color: red }</style><meta name=x></head>
        <body><script>if (a < b) { "</p>" }</script><h1>Head&shy;line</h1><p>One   <b>t</b>wo<br>three &#x20AC; &#8364; &unknown; 1 < 2</p>
        <!-- <p>hidden</p> --><ul><li><a href="../x?a=1&amp;b=2">the x</a>, more</li><li><a href="#top">up</a></ul>
        <noscript>no <b>script</b></noscript><svg><title>icon</title><g><svg/></g></svg><template><p>t</p></template>
        <table><tr><td>a</td><td>b</td></tr></table><pre>  x
    y</pre><a href="javascript:alert(1)">js</a> <a title="a > b" href='https://o.example/'>https://o.example/</a>
        </body></html>"##;
    let found = read("text/html; charset=utf-8", page).await.unwrap();
    let at = found["url"].as_str().unwrap().strip_suffix("/dir/page").unwrap();
    assert_eq!(found["title"], "A & B page");
    let expected = format!(
        "Headline\n\nOne two\nthree € € &unknown; 1 < 2\n\n- the x ({at}/x?a=1&b=2), more\n- up\n\na b\n\n  x\n    y\n\njs \
         https://o.example/"
    );
    assert_eq!(found["content"], expected);
}

#[test]
fn broken_pages_end_and_lose_no_more_than_they_must() {
    let at = Url::parse("https://e.example/").unwrap();
    for (html, text) in [
        ("", ""),
        ("a < b <", "a < b <"),
        ("<head><title>t</title><p>body without one", "body without one"),
        ("x<!-- open", "x"),
        ("x<script>y", "x"),
        ("x<p class='", "x"),
        ("<a href=/x>one<a href=/y>two", "one (https://e.example/x)two (https://e.example/y)"),
        ("</p></svg></a>x", "x"),
        ("<SCRIPT>a</sCript >b", "b"),
        ("<a =x / href>y</a>", "y"),
        ("<svg/>x<noscript><noscript>a</noscript>b</noscript>c", "xc"),
        ("&#x110000; &#0; &#150;&amp;lt;", "\u{fffd} \0 –&lt;"),
        ("<ü>ü", "<ü>ü"),
    ] {
        assert_eq!(html::read(html, &at).text, text, "{html}");
    }
    let far = at.join(&"x".repeat(4000)).unwrap();
    let text = html::read(&"<a href=?>y".repeat(20_000), &far).text;
    assert!(text.len() < 5 << 20, "{}", text.len());
    let started = std::time::Instant::now();
    for piece in
        ["<", "<a href='x", "</", "<!--", "<p>", "<svg>", "&", "<title>", "<script></", "<a href=x>y", "&#", "a="]
    {
        html::read(&piece.repeat(LONGEST_BODY / 4 / piece.len()), &at);
    }
    assert!(started.elapsed().as_secs() < 4, "{:?}", started.elapsed());
}

#[tokio::test]
async fn texts_are_read_as_they_are_and_other_things_refused() {
    for kind in
        ["text/plain", "application/json", "application/ld+json", "text/xml", "application/atom+xml; charset=UTF-8"]
    {
        let found = read(kind, "{ <b>1</b> }\r\nü").await.unwrap();
        assert_eq!((&found["content"], &found["title"]), (&json!("{ <b>1</b> }\nü"), &json!("")), "{kind}");
    }
    let found = read("text/plain; charset=ISO-8859-1", b"gr\xfc\xdfe \x80".to_vec()).await.unwrap();
    assert_eq!(found["content"], "grüße €");
    assert_eq!(read("text/plain", b"a\xffb".to_vec()).await.unwrap()["content"], "a\u{fffd}b");
    for kind in ["image/png", "application/octet-stream", "application/pdf", "video/mp4"] {
        let error = read(kind, "x").await.unwrap_err().to_string();
        assert!(error.contains(kind), "{error}");
    }
}

#[tokio::test]
async fn characters_that_do_something_are_removed_and_secrets_masked() {
    let found = read("text/plain", "a\u{1b}[31mb\u{202e}c\u{2066}d\u{200b}e\0\u{9b}f\u{e0041}g\r\th").await.unwrap();
    assert_eq!(found["content"], "a[31mbcdefg\n\th");
    let found = read("text/html", "<title>&#27;[2Jx&#x202e;</title>&#27;y").await.unwrap();
    assert_eq!((&found["title"], &found["content"]), (&json!("[2Jx"), &json!("y")));
    crate::redact::add([&"web-extract-key-1".into()]);
    let found = read("text/html", "<title>web-extract-key-1</title>is web-extract\u{200b}-key-1").await.unwrap();
    assert_eq!((&found["title"], &found["content"]), (&json!("[redacted]"), &json!("is [redacted]")));
    refused(settings(1), "http://127.0.0.1:1/?k=web-extract-key-1", "holds a secret").await;
}

#[tokio::test]
async fn every_hop_of_a_redirect_is_checked() {
    let app = Router::new()
        .route("/page", get(async || answer(200, "text/plain", "here")))
        .route("/relative", get(async || redirect("page")))
        .route("/self", get(async || redirect("/self")))
        .route("/loopback", get(async || redirect("http://127.0.0.1:1/")))
        .route("/mapped", get(async || redirect("http://[::ffff:127.0.0.1]/")))
        .route("/metadata", get(async || redirect("//169.254.169.254/latest/meta-data/")))
        .route("/name", get(async || redirect("http://inside.example/")))
        .route("/file", get(async || redirect("file:///etc/passwd")))
        .route("/user", get(async || redirect("http://u:p@example.com/")))
        .route("/long", get(async || redirect(&format!("/{}", "x".repeat(5000)))))
        .route("/nowhere", get(async || answer(302, "text/plain", "")))
        .route("/error", get(async || answer(404, "text/plain", "secret")));
    let port = serve(app).await;
    let at = |path: &str| format!("http://127.0.0.1:{port}/{path}");
    let found = extract(settings(port), &at("relative")).await.unwrap();
    assert_eq!((&found["url"], &found["content"]), (&json!(at("page")), &json!("here")));
    for (path, told) in [
        ("self", "more than 5 times"),
        ("loopback", "not on the public internet"),
        ("mapped", "not on the public internet"),
        ("metadata", "not on the public internet"),
        ("name", "`inside.example` is not on the public internet"),
        ("file", "only http and https"),
        ("user", "user name or password"),
        ("long", "more than 4096 bytes"),
        ("nowhere", "without a new address"),
        ("error", "answers 404"),
    ] {
        refused(settings(port), &at(path), told).await;
    }
}

#[tokio::test]
async fn a_name_is_only_asked_at_public_addresses() {
    let port = serve(Router::new().route("/", get(async || answer(200, "text/plain", "inside")))).await;
    for name in ["inside.example", "inside6.example"] {
        refused(settings(port), &format!("http://{name}:{port}/"), "is not on the public internet").await;
    }
    refused(settings(port), "http://unknown.example/", "cannot be reached: no such name").await;
    refused(settings(port), &format!("http://0x7f.0.0.2:{port}/"), "is not on the public internet").await;
    refused(settings(port), "no address", "this is no address of the web").await;
    let guard = PublicOnly { lookup: names(), proxies: Arc::new(["proxy.corp".to_owned()]) };
    let mixed = guard.public_of("mixed.example").await.unwrap();
    assert_eq!(mixed, ["8.8.8.8:0".parse().unwrap()]);
    let proxy: Vec<_> = guard.resolve("proxy.corp".parse().unwrap()).await.unwrap().collect();
    assert_eq!(proxy, ["127.0.0.1:0".parse().unwrap()], "a proxy may be anywhere");
}

#[tokio::test]
async fn behind_a_proxy_names_are_checked_before_it_is_asked() {
    let port = serve(Router::new().fallback(async || answer(200, "text/plain", "from the proxy"))).await;
    let proxies = Proxies { all: Some(format!("http://proxy.corp:{port}").into()), ..Proxies::default() };
    let through = || WebSettings { proxies: proxies.clone(), ..WebSettings::default() };
    assert_eq!(extract(through(), "http://mixed.example/").await.unwrap()["content"], "from the proxy");
    refused(through(), "http://inside.example/", "is not on the public internet").await;
    refused(through(), &format!("http://proxy.corp:{port}/"), "is not on the public internet").await;
}

#[tokio::test]
async fn slow_and_huge_bodies_are_cut_off() {
    let endless = || futures_util::stream::repeat_with(|| Ok::<_, io::Error>(vec![b'x'; 1 << 16]));
    let app = Router::new()
        .route("/huge", get(async move || answer(200, "text/plain", Sent::from_stream(endless()))))
        .route(
            "/slow",
            get(async || {
                let never = futures_util::stream::pending::<io::Result<Vec<u8>>>();
                answer(200, "text/plain", Sent::from_stream(never))
            }),
        )
        .route(
            "/packed",
            get(async || {
                let mut packed = answer(200, "text/plain", "x");
                packed.headers_mut().insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
                packed
            }),
        );
    let port = serve(app).await;
    let settings = WebSettings { output_bytes: 1000, timeout: Duration::from_millis(1500), ..settings(port) };
    let found = extract(settings.clone(), &format!("http://127.0.0.1:{port}/huge")).await.unwrap();
    let content = found["content"].as_str().unwrap();
    assert!(content.starts_with(&"x".repeat(1000)) && content.len() < 1200, "{}", content.len());
    assert!(content.contains("bytes of text are left out") && content.contains("longer than 2 MB"));
    refused(settings.clone(), &format!("http://127.0.0.1:{port}/packed"), "compressed (gzip)").await;
    let error = extract(settings, &format!("http://127.0.0.1:{port}/slow")).await.unwrap_err();
    assert!(matches!(error, ToolError::TimedOut(_)), "{error}");
}
