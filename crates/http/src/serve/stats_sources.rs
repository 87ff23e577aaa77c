//! The answer to a request for statistics, and who gets it.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use http::StatusCode;
use kelvin_machine::resources::ProcessMonitor;
use kelvin_transfer::wire::secret::Secret;

use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::request::HttpRequest;
use kelvin_sys::lock;

/// The path of the statistics.
pub const STATS_PATH: &str = "/.kelvin/stats";
/// The first name of it, below which nothing of the root is served.
pub const RESERVED_NAME: &[u8] = b".kelvin";

/// What statistics are made of, and who may read them.
#[derive(Debug)]
pub struct StatsSources {
    /// What the server knows of its requests.
    pub(crate) sampler: Option<Arc<InFlightSampler>>,
    /// The socket that it listens on.
    pub(crate) listener: Arc<TcpListener>,
    pub(crate) workers: Option<u32>,
    pub(crate) process: Mutex<ProcessMonitor>,
    pub(crate) token: Secret,
}

impl StatsSources {
    /// What is answered to a request, as JSON.
    ///
    /// # Errors
    /// The status of an answer without statistics.
    pub fn snapshot(&self, request: &HttpRequest<'_>) -> std::result::Result<String, StatusCode> {
        if request.path != STATS_PATH {
            return Err(StatusCode::NOT_FOUND);
        }
        let token = request.fields.authorization.and_then(bearer_token);
        if !token.is_some_and(|token| self.token.matches(token.as_bytes())) {
            return Err(StatusCode::UNAUTHORIZED);
        }
        let snapshot = lock(&self.process).sample();
        let mut snapshot = snapshot.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        snapshot.server = self.sampler.as_ref().map(|sampler| sampler.snapshot(&self.listener));
        snapshot.server.iter_mut().for_each(|server| server.workers = self.workers);
        let json = kelvin_core::json::to_string(&snapshot).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        Ok(json + "\n")
    }
}

/// The token of a field `Authorization` (RFC 6750, section 2.1).
fn bearer_token(field: &str) -> Option<&str> {
    let (scheme, token) = field.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_requires_bearer_scheme() {
        assert_eq!(bearer_token("Bearer abc="), Some("abc="));
        assert_eq!(bearer_token("bearer  abc "), Some("abc"));
        for other in ["Basic abc", "Bearer", "", "abc", "Bearerabc"] {
            assert_eq!(bearer_token(other), None, "{other}");
        }
    }
}
