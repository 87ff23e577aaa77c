//! The requests of a HAR file (HTTP Archive 1.2), as browsers record them, and when each was sent.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use jiff::Timestamp;
use serde::Deserialize;

use crate::load::replay::{Replay, scaled_duration};
use crate::load::request::{RequestTemplate, parse_method};
use crate::load::slo::MAX_DURATION;

/// Headers of a connection or of a body's length, which are this client's own, and the host, which is the target's.
const OWN_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Nanoseconds of the shortest recording.
const MIN_DURATION: i128 = 1_000_000;

#[derive(Deserialize)]
struct HarFile {
    log: HarLog,
}

#[derive(Deserialize)]
struct HarLog {
    entries: Vec<HarEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HarEntry {
    started_date_time: String,
    /// Milliseconds from there to the end of the response.
    time: Option<f64>,
    request: HarRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HarRequest {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<HarHeader>,
    post_data: Option<HarBody>,
}

#[derive(Deserialize)]
struct HarHeader {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct HarBody {
    text: Option<String>,
}

/// A request that can be sent.
struct RecordedRequest {
    /// Nanoseconds since 1970.
    start: i128,
    end: i128,
    path: String,
    template: RequestTemplate,
}

/// Reads a recording, which is sent this many times as fast: the requests to the host of its first one. The headers of `template` take the
/// place of recorded ones.
///
/// # Errors
/// What is no HAR, by its line; an entry whose time, method or header is wrong; a recording without any request, or of more than a week.
pub(crate) fn read(text: &[u8], speed: f64, template: &RequestTemplate) -> Result<Replay, String> {
    let file: HarFile = serde_json::from_slice(text).map_err(|error| format!("it is no HAR: {error}"))?;
    let mut replay = Replay { unit: "requests", ..Replay::default() };
    let mut requests: Vec<RecordedRequest> = Vec::new();
    let mut host: Option<(String, u16)> = None;
    for (number, entry) in (1..).zip(&file.log.entries) {
        let request = recorded_request(entry, template, &mut host, &mut replay);
        requests.extend(request.map_err(|error| format!("entry {number}: {error}"))?);
    }
    // Browsers list entries by page.
    requests.sort_by_key(|request| request.start);
    let (Some(first), Some(end)) = (requests.first(), requests.iter().map(|request| request.end).max()) else {
        let skipped = if replay.skipped.total() > 0 { format!(": requests {}", replay.skipped) } else { String::new() };
        return Err(format!("it has no request that can be sent{skipped}"));
    };
    let first = first.start;
    let seconds = |time: i128| (time - first) as f64 / 1e9;
    replay.duration = scaled_duration(seconds(end), speed);
    if replay.duration > MAX_DURATION {
        return Err("it would take more than a week".into());
    }
    for RecordedRequest { start, path, template, .. } in requests {
        replay.times.push(scaled_duration(seconds(start), speed).as_nanos() as u64);
        replay.paths.push(path);
        replay.templates.push(template);
    }
    Ok(replay)
}

/// Host and port of a URL; without a port that of its scheme.
fn origin(uri: &Uri) -> Option<(String, u16)> {
    let usual_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    Some((uri.host()?.to_ascii_lowercase(), uri.port_u16().unwrap_or(usual_port)))
}

/// The request of an entry; nothing, and counted, if it is not sent.
fn recorded_request(
    entry: &HarEntry,
    template: &RequestTemplate,
    host: &mut Option<(String, u16)>,
    replay: &mut Replay,
) -> Result<Option<RecordedRequest>, String> {
    let HarEntry { started_date_time, time, request } = entry;
    let start: Timestamp =
        started_date_time.parse().map_err(|_| format!("startedDateTime: {} is no time", quote(started_date_time)))?;
    let uri = request.url.parse::<Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    let Some((origin, path)) = uri.as_ref().and_then(|uri| Some((origin(uri)?, uri.path_and_query()?))) else {
        replay.skipped.other_targets += 1;
        return Ok(None);
    };
    if *host.get_or_insert_with(|| origin.clone()) != origin {
        replay.skipped.other_hosts += 1;
        return Ok(None);
    }
    let body = match &request.post_data {
        None => String::new(),
        Some(HarBody { text: Some(text) }) => text.clone(),
        Some(HarBody { text: None }) => {
            replay.skipped.missing_bodies += 1;
            return Ok(None);
        }
    };
    let mut own = RequestTemplate { body: body.into_bytes(), ..template.clone() };
    own.method =
        parse_method(&request.method).map_err(|error| format!("method {}: {error}", quote(&request.method)))?;
    for header in &request.headers {
        let Some((name, value)) = recorded_header(header)? else { continue };
        if !template.headers.iter().any(|(other, _)| *other == name) {
            own.headers.push((name, value));
        }
    }
    let start = start.as_nanosecond();
    let length = Duration::try_from_secs_f64(time.unwrap_or_default() / 1e3).unwrap_or_default().as_nanos() as i128;
    let path = if path.as_str().starts_with('/') { path.to_string() } else { format!("/{path}") };
    Ok(Some(RecordedRequest { start, end: start + length.max(MIN_DURATION), path, template: own }))
}

/// A header that is sent as it was recorded; nothing for one of the connection.
fn recorded_header(header: &HarHeader) -> Result<Option<(HeaderName, HeaderValue)>, String> {
    let HarHeader { name, value } = header;
    // What HTTP/2 has instead of a request line.
    if name.starts_with(':') || OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let parsed = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value.as_bytes()).ok());
    parsed.map(Some).ok_or_else(|| format!("header {}: it cannot be sent", quote(name)))
}

/// A text of others in quotes, cut where it is too long for a line.
fn quote(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::request::parse_header;
    use crate::load::tests::damaged;

    const RECORDING: &str = r#"{"log": {"version": "1.2", "creator": {"name": "x", "version": "1"}, "entries": [
{"startedDateTime": "2026-11-30T08:00:01.250+01:00", "time": 50, "request": {"method": "POST", "url": "https://shop.test/orders?x=1#top",
 "headers": [{"name": ":authority", "value": "shop.test"}, {"name": "Content-Length", "value": "9"}, {"name": "Content-Type", "value": "text/plain"},
 {"name": "Cookie", "value": "a=1"}, {"name": "Cookie", "value": "b=2"}], "postData": {"mimeType": "text/plain", "text": "one"}}},
{"startedDateTime": "2026-11-30T07:00:01.000Z", "time": null, "request": {"method": "GET", "url": "https://SHOP.test:443", "headers": []}},
{"startedDateTime": "2026-11-30T07:00:01.100Z", "time": 1, "request": {"method": "GET", "url": "https://other.test/", "headers": []}},
{"startedDateTime": "2026-11-30T07:00:01.100Z", "time": 1, "request": {"method": "GET", "url": "data:text/plain,x", "headers": []}},
{"startedDateTime": "2026-11-30T07:00:01.200Z", "time": 1, "request": {"method": "PUT", "url": "https://shop.test/form", "postData": {"params": []}}}
]}}"#;

    fn read(text: &str, speed: f64) -> Result<Replay, String> {
        let headers = vec![parse_header("Content-Type: x/y").unwrap()];
        let template = RequestTemplate { headers, ..RequestTemplate::default() };
        Replay::read(text.as_bytes(), speed, &template)
    }

    #[test]
    fn requests_of_first_host_are_replayed_in_time() {
        let replay = read(&format!("\u{feff}{RECORDING}"), 2.0).unwrap();
        assert_eq!(
            (&replay.paths[..], &replay.times[..]),
            (&["/".to_owned(), "/orders?x=1".into()][..], &[0, 125_000_000][..])
        );
        // To the end of the last response.
        assert_eq!(replay.duration, Duration::from_millis(150));
        let [list, order] = &replay.templates[..] else { panic!("two requests") };
        assert_eq!((list.method.as_str(), order.method.as_str(), &order.body[..]), ("GET", "POST", &b"one"[..]));
        let headers: Vec<String> = order.headers.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        assert_eq!(headers, ["content-type=\"x/y\"", "cookie=\"a=1\"", "cookie=\"b=2\""]);
        let skipped = "1 whose target is no path that can be sent, 1 to another host than the first, 1 whose body was not recorded";
        assert_eq!((replay.skipped.to_string().as_str(), replay.unit), (skipped, "requests"));
    }

    #[test]
    fn mistake_names_line_or_entry() {
        let entry = |time: &str, method: &str, header: &str| {
            format!(
                r#"{{"log": {{"entries": [{{"startedDateTime": "{time}", "request": {{"method": "{method}", "url": "http://a/", "headers": [{{"name": "{header}", "value": "x"}}]}}}}]}}}}"#
            )
        };
        let time = "2026-11-30T07:00:00Z";
        assert!(read(&entry(time, "GET", "a"), 1.0).is_ok());
        for (text, expected) in [
            ("{}".to_owned(), "it is no HAR: missing field `log` at line 1"),
            ("{\n\"log\": 5}".into(), "it is no HAR: invalid type: integer `5`, expected struct HarLog at line 2"),
            (r#"{"log": {"entries": []}}"#.into(), "it has no request that can be sent"),
            (entry("yesterday", "GET", "a"), "entry 1: startedDateTime: \"yesterday\" is no time"),
            (entry(time, "G T", "a"), "entry 1: method \"G T\": give a method"),
            (entry(time, &" ".repeat(3000), "a"), &format!("entry 1: method {:?}...: give a method", " ".repeat(40))),
            (entry(time, "GET", "a b"), "entry 1: header \"a b\": it cannot be sent"),
        ] {
            let error = read(&text, 1.0).unwrap_err();
            assert!(error.starts_with(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }

    proptest! {
        /// A damaged recording is requests in order that can be sent, or one line of a reason.
        #[test]
        fn damaged_recording_is_sendable_or_refused(text in damaged(RECORDING)) {
            match read(&text, 1.0) {
                Ok(replay) => {
                    prop_assert!(replay.times.is_sorted() && replay.times.len() == replay.paths.len());
                    prop_assert!(replay.paths.iter().all(|path| path.starts_with('/') && !path.contains([' ', '\r', '\n'])));
                    prop_assert!(replay.times.last().is_some_and(|&last| Duration::from_nanos(last) < replay.duration));
                }
                Err(reason) => prop_assert!(!reason.is_empty() && !reason.contains('\n')),
            }
        }
    }
}
