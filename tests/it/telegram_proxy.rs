//! Telegram where only a proxy reaches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::fake_model::FakeModel;
use crate::support::fake_telegram::FakeTelegram;
use crate::support::world::{Town, World};

const PASSWORD: &str = "proxy-pass-word";
/// A name that nothing but the proxy knows.
const NOWHERE: &str = "http://telegram.invalid";

/// A conversation in a world whose Telegram is behind `proxy`; the log is looked through for the password.
async fn talk_through(variable: &str, proxy: &str, telegram: FakeTelegram) -> Result<()> {
    let world = World::default().echo().telegram_at(NOWHERE).env(variable, proxy);
    let mut town = Town::begin_with(world, telegram, FakeModel::start().await).await?;
    town.telegram.alice().says("hello");
    assert_eq!(town.telegram.alice().hears().await?.text, "hello");
    town.stop().await?;
    assert!(!town.log.text().contains(PASSWORD));
    Ok(())
}

#[tokio::test]
async fn an_http_proxy_is_used() -> Result<()> {
    // Plain HTTP goes through a proxy with whole addresses, which the fake serves as its own.
    let telegram = FakeTelegram::start().await;
    let address = telegram.base_url().replace("http://", &format!("http://user:{PASSWORD}@"));
    talk_through("TELEGRAM_PROXY", &address, telegram).await
}

#[tokio::test]
async fn a_proxy_for_everything_is_told_to_the_client_and_not_left_to_the_process() -> Result<()> {
    // What a world sets is not in this process's environment, just as `.env` is not.
    for variable in ["HTTP_PROXY", "all_proxy"] {
        let telegram = FakeTelegram::start().await;
        let address = telegram.base_url().replace("http://", &format!("user:{PASSWORD}@"));
        talk_through(variable, &address, telegram).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_socks_proxy_is_used_and_looks_the_name_up() -> Result<()> {
    let telegram = FakeTelegram::start().await;
    let target = telegram.base_url().replace("http://", "");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let tunnels = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tunnels);
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(tunnel(stream, target.clone()));
        }
    });
    talk_through("TELEGRAM_PROXY", &format!("socks5h://user:{PASSWORD}@{address}"), telegram).await?;
    serving.abort();
    assert!(tunnels.load(Ordering::Relaxed) > 0);
    Ok(())
}

/// One connection of SOCKS 5 with a user and a password (RFC 1928, 1929), to `target` whatever is asked for.
async fn tunnel(mut stream: TcpStream, target: String) -> Result<()> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).await?;
    let mut methods = vec![0; usize::from(head[1])];
    stream.read_exact(&mut methods).await?;
    ensure!(methods.contains(&2));
    stream.write_all(&[5, 2]).await?;
    let mut asked = Vec::new();
    stream.read_u8().await?;
    for _ in 0..2 {
        let mut text = vec![0; usize::from(stream.read_u8().await?)];
        stream.read_exact(&mut text).await?;
        asked.push(text);
    }
    ensure!(asked == [b"user".to_vec(), PASSWORD.as_bytes().to_vec()]);
    stream.write_all(&[1, 0]).await?;
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    ensure!(request == [5, 1, 0, 3], "a name is asked for, not an address");
    let mut name = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut name).await?;
    ensure!(name == b"telegram.invalid");
    stream.read_u16().await?;
    let mut telegram = TcpStream::connect(target).await?;
    stream.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0]).await?;
    tokio::io::copy_bidirectional(&mut stream, &mut telegram).await?;
    Ok(())
}
