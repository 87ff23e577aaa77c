//! Asking a server what it has used.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kelvin_core::resources::{MAX_SNAPSHOT_BYTES, ResourceSnapshot};

use crate::load::response_parser::ResponseParser;
use crate::serve::stats_endpoint::STATS_PATH;
use crate::sweep::error::{Error, Result};

/// Time in which a server answers.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of its head.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Where a server tells what it uses, to whoever knows the token.
#[derive(Clone, Debug)]
pub(crate) struct StatsClient {
    pub address: SocketAddr,
    pub token: String,
}

impl StatsClient {
    /// What the server has used until now.
    ///
    /// # Errors
    /// A server that does not answer, or something else than a look.
    pub fn fetch(&self) -> Result<ResourceSnapshot> {
        let failed = |why: String| Error::Resources { address: self.address, why };
        let answer = self.query().map_err(|error| failed(error.to_string()))?;
        let body = response_body(&answer).map_err(failed)?;
        ResourceSnapshot::from_json(&body).map_err(|error| failed(format!("it is no look at resources: {error}")))
    }

    fn query(&self) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&self.address, RESPONSE_TIMEOUT)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
        // Without the zone of an address of one link, which means nothing to the server (RFC 6874, section 4).
        let host = SocketAddr::new(self.address.ip(), self.address.port());
        let token = &self.token;
        let request = format!(
            "GET {STATS_PATH} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take((MAX_HEAD_BYTES + MAX_SNAPSHOT_BYTES) as u64).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

/// The body of a good answer.
fn response_body(answer: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let (mut parser, mut body) = (ResponseParser::new(false), Vec::new());
    let whole = parser.feed(answer, &mut |bytes| body.extend_from_slice(bytes));
    let is_whole = whole.map_err(|error| format!("its answer is {error}"))?.is_some() || parser.finish().is_ok();
    match parser.status() {
        200 if is_whole => Ok(body),
        0 | 200 => Err("its answer is not whole".into()),
        status => Err(format!("it answers {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_successful_body_is_used() {
        assert_eq!(response_body(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), Ok(b"{}".to_vec()));
        assert_eq!(response_body(b"HTTP/1.1 401 Unauthorized\r\n\r\nno"), Err("it answers 401".into()));
        assert_eq!(response_body(b"HTTP/1.1 200 OK\r\nContent-"), Err("its answer is not whole".into()));
        assert!(response_body(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap_err().starts_with("its answer is no HTTP response"));
    }

    #[test]
    fn silent_server_is_named() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let asked = StatsClient { address: nobody, token: "secret".into() }.fetch().unwrap_err().to_string();
        assert!(asked.starts_with(&format!("the server at {nobody} does not tell what it uses: ")), "{asked}");
        assert!(!asked.contains("secret"));
    }
}
