use std::io::Read;

use flate2::read::GzDecoder;

use super::Service;

const GZIP: (&str, &str) = ("accept-encoding", "br, gzip;q=0.8");

#[tenure_testkit::test]
fn the_page_and_its_files_are_there_with_their_kinds() {
    let service = Service::start(&[]);
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/assets/app.js", "text/javascript; charset=utf-8"),
        ("/assets/style.css", "text/css; charset=utf-8"),
        ("/assets/icon.svg", "image/svg+xml"),
        ("/assets/uplot.js", "text/javascript; charset=utf-8"),
    ] {
        let answer = service.get(path);
        answer.is(200);
        assert_eq!(answer.header("content-type"), kind, "{path}");
        assert_eq!(answer.header("cache-control"), "no-cache", "{path}");
        assert!(
            answer
                .header("content-security-policy")
                .contains("script-src 'self'")
        );
    }
    service
        .get("/assets/nothing.js")
        .is_problem(404, "not_found");
    service
        .get("/assets/..%2Fpage.rs")
        .is_problem(404, "not_found");
}

#[tenure_testkit::test]
fn every_file_that_a_file_names_is_served() {
    let service = Service::start(&[]);
    let (mut open, mut seen) = (vec!["/".to_owned()], Vec::new());
    while let Some(path) = open.pop() {
        let text = service.get(&path).is(200).text.clone();
        let named = text.split(['"', '\'']);
        let named = named.filter_map(|word| {
            let name = word
                .strip_prefix("assets/")
                .or_else(|| word.strip_prefix("./"))?;
            Some(format!("/assets/{name}"))
        });
        open.extend(named.filter(|path| !seen.contains(path)));
        seen.push(path);
    }
    assert!(seen.len() > 20, "{seen:?}");
}

#[tenure_testkit::test]
fn a_file_is_sent_packed_and_not_twice() {
    let service = Service::start(&[]);
    let plain = service.get("/assets/app.js");
    assert_eq!(plain.header("content-encoding"), "");
    assert_eq!(plain.header("vary"), "accept-encoding");
    let url = format!("{}/assets/app.js", service.url);
    let mut packed = ureq::get(url).header(GZIP.0, GZIP.1).call().unwrap();
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    let packed_tag = packed.headers()["etag"].to_str().unwrap().to_owned();
    assert_ne!(packed_tag, plain.header("etag"));
    let mut text = String::new();
    let mut reader = GzDecoder::new(packed.body_mut().as_reader());
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, plain.text);
    let refused = ("accept-encoding", "gzip;q=0, identity");
    let refused = service.send("GET", "/assets/app.js", &[refused], "");
    assert_eq!(refused.text, plain.text);

    let known = format!("\"other\", W/{}", plain.header("etag"));
    let again = service.send("GET", "/assets/app.js", &[("if-none-match", &known)], "");
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    assert_eq!(again.header("etag"), plain.header("etag"));
    let other = [("if-none-match", packed_tag.as_str())];
    service.send("GET", "/assets/app.js", &other, "").is(200);
}

#[tenure_testkit::test]
fn below_a_path_the_page_has_its_slash() {
    let service = Service::start(&["--base-path", "/tenure"]);
    // The address has the path already. Without the slash, the page's own addresses would miss it.
    let page = service.get("/");
    assert!(page.is(200).text.contains("assets/app.js"));
    service.get("/assets/app.js").is(200);
    let bare = ureq::get(&service.url).config().max_redirects(0).build();
    let bare = bare.call().unwrap();
    assert_eq!(bare.headers()["location"], "/tenure/");
}
