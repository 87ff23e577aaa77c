//! The requests of a load as HTTP/2 has them, made once before the first is due.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request, Uri};

use crate::load::error::Error;
use crate::load::request::{RequestTemplate, USER_AGENT};
use crate::load::server_url::ServerUrl;
use crate::load::setup::LoadSetup;

/// Headers that speak of one connection of HTTP/1.1, which HTTP/2 forbids (RFC 9113 8.2.2).
const CONNECTION_HEADERS: [&str; 6] =
    ["connection", "http2-settings", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Whether HTTP/2 forbids this header.
fn is_forbidden(name: &HeaderName, value: &HeaderValue) -> bool {
    CONNECTION_HEADERS.contains(&name.as_str()) || *name == header::TE && value != "trailers"
}

/// What requests have beside their path.
#[derive(Debug)]
struct RequestHead {
    method: Method,
    headers: HeaderMap,
    body: Bytes,
}

/// Every request, by its number.
#[derive(Debug, Default)]
pub(crate) struct Http2Requests {
    heads: Vec<RequestHead>,
    /// The number of the head, and the URI, of each.
    requests: Vec<(usize, Uri)>,
}

impl Http2Requests {
    /// # Errors
    /// A header or a path that HTTP/2 cannot send.
    pub(crate) fn new(setup: &LoadSetup) -> Result<Self, Error> {
        let mut requests = Self::default();
        let path_counts: Vec<usize> = match (&setup.kinds[..], &setup.templates[..]) {
            ([], []) => vec![setup.paths.len()],
            ([], templates) => vec![1; templates.len()],
            (kinds, _) => kinds.iter().map(|kind| kind.paths.len()).collect(),
        };
        let mut paths = setup.paths.iter();
        for (template, count) in setup.templates().into_iter().zip(path_counts) {
            requests.push(&setup.target, template, paths.by_ref().take(count)).map_err(Error::Http2)?;
        }
        Ok(requests)
    }

    fn push<'p>(
        &mut self,
        target: &ServerUrl,
        template: &RequestTemplate,
        paths: impl Iterator<Item = &'p String>,
    ) -> Result<(), String> {
        let head = self.heads.len();
        let (headers, authority) = headers(target, template)?;
        let scheme = if target.secure { "https" } else { "http" };
        for path in paths {
            let path_and_query: PathAndQuery =
                path.parse().map_err(|error| format!("the path {path} cannot be sent: {error}"))?;
            let uri = Uri::builder().scheme(scheme).authority(authority.clone()).path_and_query(path_and_query);
            self.requests
                .push((head, uri.build().map_err(|error| format!("the path {path} cannot be sent: {error}"))?));
        }
        let body = Bytes::copy_from_slice(&template.body);
        self.heads.push(RequestHead { method: template.method.clone(), headers, body });
        Ok(())
    }

    /// One of them, and its body.
    pub(crate) fn get(&self, number: usize) -> (Request<()>, &Bytes) {
        let (head, uri) = &self.requests[number];
        let RequestHead { method, headers, body } = &self.heads[*head];
        let mut request = Request::new(());
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri.clone();
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = headers.clone();
        (request, body)
    }
}

/// The headers of all requests of a template, and their authority, in whose place HTTP/1.1 has a Host header.
fn headers(target: &ServerUrl, template: &RequestTemplate) -> Result<(HeaderMap, Authority), String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    if template.states_length() {
        headers.insert(header::CONTENT_LENGTH, template.body.len().into());
    }
    let mut authority = target.authority.as_bytes();
    let mut has_own_agent = false;
    for (name, value) in &template.headers {
        if is_forbidden(name, value) {
            return Err(format!("HTTP/2 has no header {name}: leave it out"));
        }
        if *name == header::HOST {
            authority = value.as_bytes();
        } else if *name == header::USER_AGENT && !has_own_agent {
            has_own_agent = true;
            headers.insert(name, value.clone());
        } else {
            headers.append(name, value.clone());
        }
    }
    let parsed = Authority::try_from(authority);
    let authority = parsed.map_err(|error| format!("the header host is no authority: {error}"))?;
    Ok((headers, authority))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::request::parse_header;

    fn template(lines: &[&str], body: &[u8]) -> RequestTemplate {
        let headers = lines.iter().map(|line| parse_header(line).unwrap()).collect();
        RequestTemplate { headers, body: body.to_vec(), method: Method::POST, ..RequestTemplate::default() }
    }

    fn requests(lines: &[&str]) -> Result<Http2Requests, String> {
        let target = "https://localhost:8443/".parse().unwrap();
        let mut requests = Http2Requests::default();
        requests.push(&target, &template(lines, b"hi"), ["/a?b".to_owned()].iter())?;
        Ok(requests)
    }

    #[test]
    fn host_becomes_the_authority() {
        for (lines, authority) in [(&[][..], "localhost:8443"), (&["Host: shop.test", "A: b"][..], "shop.test")] {
            let requests = requests(lines).unwrap();
            let (request, body) = requests.get(0);
            assert_eq!(request.uri().to_string(), format!("https://{authority}/a?b"));
            assert!(!request.headers().contains_key("host") && *body == "hi");
            assert_eq!(
                (&request.headers()["content-length"], request.method()),
                (&"2".parse().unwrap(), &Method::POST)
            );
        }
        assert!(requests(&["Host: a b"]).unwrap_err().contains("no authority"));
    }

    #[test]
    fn own_headers_take_the_place_of_defaults() {
        let requests = requests(&["User-Agent: x", "Cookie: a=1", "Cookie: b=2", "TE: trailers"]).unwrap();
        let (request, _) = requests.get(0);
        assert_eq!(request.headers().get_all("user-agent").iter().collect::<Vec<_>>(), ["x"]);
        assert_eq!(request.headers().get_all("cookie").iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
    }

    #[test]
    fn headers_of_a_connection_are_refused() {
        for line in ["Connection: close", "Keep-Alive: x", "Upgrade: h2c", "TE: gzip", "Proxy-Connection: x"] {
            let error = requests(&[line]).unwrap_err();
            assert!(error.contains("HTTP/2 has no header") && error.ends_with("leave it out"), "{error}");
        }
    }
}
