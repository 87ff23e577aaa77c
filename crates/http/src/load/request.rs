//! The requests that are sent, written once before the first is due.

use http::{HeaderName, HeaderValue, Method};

use crate::load::server_url::ServerUrl;

/// What is sent with every request.
#[derive(Clone, Debug, Default)]
pub struct RequestTemplate {
    /// GET unless another one is asked for.
    pub method: Method,
    /// Headers besides Host and User-Agent, of which one given here takes the place, and Content-Length, which is that of the body.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether each request has a connection of its own, which ends with its answer.
    pub closes_connections: bool,
}

/// What requests say they come from.
pub(crate) const USER_AGENT: &str = concat!("kelvin/", env!("CARGO_PKG_VERSION"));

impl RequestTemplate {
    /// Whether the length of the body is stated: of an empty one as well, where a body is expected (RFC 9110 8.6).
    pub(crate) fn states_length(&self) -> bool {
        !self.body.is_empty() || matches!(self.method, Method::POST | Method::PUT | Method::PATCH)
    }
}

/// A header as it is written, such as `Accept: text/html`.
///
/// # Errors
/// What would be right, in words.
pub fn parse_header(line: &str) -> Result<(HeaderName, HeaderValue), String> {
    const FORMAT_HELP: &str = "give a name, a colon and a value, such as 'Accept: text/html'";
    let (name, value) = line.split_once(':').ok_or(FORMAT_HELP)?;
    let name: HeaderName = name.trim().parse().map_err(|_| FORMAT_HELP.to_owned())?;
    // With another length, or with chunks that are none, the server takes the next request for a part of the body.
    if [http::header::TRANSFER_ENCODING, http::header::CONTENT_LENGTH].contains(&name) {
        return Err("a body is sent with a Content-Length, which is always its own".into());
    }
    Ok((name, value.trim().parse().map_err(|_| FORMAT_HELP.to_owned())?))
}

/// A method as it is written.
///
/// # Errors
/// What would be right, in words.
pub fn parse_method(text: &str) -> Result<Method, String> {
    match text.parse() {
        Ok(Method::CONNECT) => Err("a tunnel has no answers to measure".into()),
        Ok(method) => Ok(method),
        Err(_) => Err("give a method such as GET, HEAD or POST".into()),
    }
}

/// One request as it is sent.
#[derive(Debug)]
pub struct PreparedRequest {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The number of its kind in a mix.
    pub kind: u32,
    /// Whether answers have no body.
    pub head_only: bool,
    /// Whether it may be sent again if its connection ended before an answer (RFC 9110 9.2.2).
    pub is_idempotent: bool,
}

/// Every request, written once.
#[derive(Debug, Default)]
pub struct RequestSet {
    requests: Vec<PreparedRequest>,
}

impl RequestSet {
    /// One for each path of the server; more are added by [`RequestSet::push`].
    pub fn new(target: &ServerUrl, template: &RequestTemplate, paths: &[String]) -> Self {
        let mut requests = Self { requests: Vec::with_capacity(paths.len()) };
        requests.push(target, template, 0, paths);
        requests
    }

    /// Adds one for each path, of this kind.
    pub fn push(&mut self, target: &ServerUrl, template: &RequestTemplate, kind: u32, paths: &[String]) {
        let (method, rest) = (&template.method, common_tail(target, template));
        self.requests.extend(paths.iter().map(|path| PreparedRequest {
            bytes: [method.as_str().as_bytes(), b" ", path.as_bytes(), &rest].concat(),
            kind,
            head_only: method == Method::HEAD,
            is_idempotent: method.is_idempotent(),
        }));
    }

    /// Without the bytes that HTTP/1.1 sends: HTTP/2 has a form of its own.
    pub(crate) fn without_bytes(mut self) -> Self {
        self.requests.iter_mut().for_each(|request| request.bytes = Vec::new());
        self
    }

    /// One of them.
    pub fn get(&self, number: usize) -> &PreparedRequest {
        &self.requests[number]
    }
}

/// What follows the path: the same for all.
fn common_tail(target: &ServerUrl, template: &RequestTemplate) -> Vec<u8> {
    let mut rest = b" HTTP/1.1\r\n".to_vec();
    let mut line = |name: &str, value: &[u8]| {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            rest.extend_from_slice(part);
        }
    };
    let has_header = |name: &str| template.headers.iter().any(|(header_name, _)| header_name == name);
    if !has_header("host") {
        line("Host", target.authority.as_bytes());
    }
    if !has_header("user-agent") {
        line("User-Agent", USER_AGENT.as_bytes());
    }
    if template.states_length() {
        line("Content-Length", template.body.len().to_string().as_bytes());
    }
    if template.closes_connections && !has_header("connection") {
        line("Connection", b"close");
    }
    for (name, value) in &template.headers {
        line(name.as_str(), value.as_bytes());
    }
    rest.extend_from_slice(b"\r\n");
    rest.extend_from_slice(&template.body);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_methods_parse() {
        let (name, value) = parse_header("Accept:  text/html ").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("accept", "text/html"));
        for header in ["", "Accept", ": x", "A B: c", "A: x\r\nB: c", "Transfer-Encoding: chunked", "content-length: 5"]
        {
            assert!(parse_header(header).is_err(), "{header:?}");
        }
        assert_eq!(parse_method("DELETE"), Ok(Method::DELETE));
        assert!(parse_method("CONNECT").is_err() && parse_method("").is_err() && parse_method("G T").is_err());
    }

    #[test]
    fn every_path_has_request_with_headers() {
        let target: ServerUrl = "http://localhost:8080/".parse().unwrap();
        let headers = vec![
            (HeaderName::from_static("user-agent"), HeaderValue::from_static("x")),
            (HeaderName::from_static("range"), HeaderValue::from_static("bytes=0-9")),
        ];
        let form = RequestTemplate { headers, body: b"hi".to_vec(), method: Method::POST, closes_connections: true };
        let requests = RequestSet::new(&target, &form, &["/a".into(), "/b?c".into()]);
        assert_eq!(
            requests.get(1).bytes,
            b"POST /b?c HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length: 2\r\nConnection: close\r\nuser-agent: x\r\nrange: bytes=0-9\r\n\r\nhi"
        );
        assert!(requests.get(0).bytes.starts_with(b"POST /a HTTP/1.1\r\n"));
        assert!(!requests.get(0).is_idempotent && !requests.get(0).head_only);
        assert_eq!(requests.requests.len(), 2);
        let empty = RequestSet::new(
            &target,
            &RequestTemplate { method: Method::PUT, ..RequestTemplate::default() },
            &["/".into()],
        );
        assert!(str::from_utf8(&empty.get(0).bytes).unwrap().contains("\r\nContent-Length: 0\r\n"));
    }
}
