use super::*;

#[test]
fn only_addresses_of_the_public_internet_are_public() {
    let not_public = "0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 100.100.100.200 127.0.0.1 127.9.9.9 \
        168.63.129.16 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 \
        198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 \
        :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.1.2.3 ::ffff:169.254.169.254 64:ff9b::7f00:1 64:ff9b::a00:1 \
        64:ff9b:1::1 64:ff9b:1::808:808 100::1 fc00::1 fd00:ec2::254 fe80::1 febf::1 fec0::1 ff02::1 ff0e::1 2001::1 \
        2001:0:7f00:1:: 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 3fff::1 3fff:fff::1 2002:7f00:1:: 2002:a00:1::1 \
        2002:a9fe:a9fe:: 2606:4700::5efe:a00:1 2606:4700::200:5efe:7f00:1 4000::1 5f00::1";
    for text in not_public.split_whitespace() {
        assert!(!is_public(text.parse().unwrap()), "{text}");
    }
    let public = "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 126.255.255.255 128.0.0.1 169.253.1.1 \
        172.15.255.255 172.32.0.1 192.0.1.1 192.167.1.1 192.169.1.1 198.17.1.1 198.20.0.1 223.255.255.255 ::ffff:8.8.8.8 \
        64:ff9b::808:808 2001:200::1 2001:4860:4860::8888 2606:4700:4700::1111 2a00:1450::1 2002:808:808::1 3ffe::1 \
        3fff:1000::1";
    for text in public.split_whitespace() {
        assert!(is_public(text.parse().unwrap()), "{text}");
    }
}

fn checked(url: &str, allowed: &[&str]) -> Result<Access, String> {
    let allowed: Vec<String> = allowed.iter().map(|text| (*text).to_owned()).collect();
    check_url(&Url::parse(url).unwrap(), &allowed)
}

#[test]
fn an_address_is_refused_however_it_is_spelled() {
    for url in [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://127.0.0.1./",
        "http://0/",
        "http://１２７.0.0.1/",
        "http://%31%32%37.0.0.1/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::10.0.0.1]/",
        "https://169.254.169.254/latest/meta-data/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://a.localhost/",
        "http://printer.local/",
        "http://metadata.google.internal./computeMetadata/v1/",
        "http://internal/",
        "http://x.home.arpa/",
    ] {
        let error = checked(url, &[]).unwrap_err();
        assert!(error.contains("is not on the public internet"), "{url}: {error}");
    }
    for url in ["ftp://example.com/", "file:///etc/passwd", "data:text/plain,x", "gopher://example.com/"] {
        assert!(checked(url, &[]).unwrap_err().contains("only http and https"), "{url}");
    }
    for url in ["http://user@example.com/", "http://u:p@example.com/", "http://:p@example.com/"] {
        assert!(checked(url, &[]).unwrap_err().contains("user name or password"), "{url}");
    }
    for url in
        ["http://example.com/", "https://8.8.8.8/", "http://notlocalhost/", "http://mylocal/", "http://[2606:4700::1]/"]
    {
        assert_eq!(checked(url, &[]), Ok(Access::Public), "{url}");
    }
}

#[test]
fn an_exemption_is_for_one_host_and_port() {
    let allowed = ["Wiki.Internal:8080", "127.0.0.1:80", "[::1]:443"];
    for url in ["http://wiki.internal:8080/x", "http://wiki.internal.:8080/", "http://0x7f.1/", "https://[::1]/"] {
        assert_eq!(checked(url, &allowed), Ok(Access::Exempt), "{url}");
    }
    for url in ["http://wiki.internal/", "http://a.wiki.internal:8080/", "https://127.0.0.1/", "http://[::1]/"] {
        assert!(checked(url, &allowed).is_err(), "{url}");
    }
    assert!(checked("http://u:p@127.0.0.1/", &allowed).is_err(), "credentials stay refused");
}
