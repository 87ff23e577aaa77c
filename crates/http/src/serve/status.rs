//! The status codes that a static file server answers (RFC 9110, section 15).

/// A status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs, reason = "each is what RFC 9110 calls it")]
pub enum Status {
    Ok = 200,
    PartialContent = 206,
    MovedPermanently = 301,
    NotModified = 304,
    BadRequest = 400,
    Unauthorized = 401,
    Forbidden = 403,
    NotFound = 404,
    MethodNotAllowed = 405,
    RequestTimeout = 408,
    PreconditionFailed = 412,
    ContentTooLarge = 413,
    UriTooLong = 414,
    RangeNotSatisfiable = 416,
    MisdirectedRequest = 421,
    HeaderFieldsTooLarge = 431,
    InternalServerError = 500,
    ServiceUnavailable = 503,
    VersionNotSupported = 505,
}

impl Status {
    /// The first line of an answer, after the version.
    pub fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::PartialContent => "206 Partial Content",
            Self::MovedPermanently => "301 Moved Permanently",
            Self::NotModified => "304 Not Modified",
            Self::BadRequest => "400 Bad Request",
            Self::Unauthorized => "401 Unauthorized",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::RequestTimeout => "408 Request Timeout",
            Self::PreconditionFailed => "412 Precondition Failed",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::UriTooLong => "414 URI Too Long",
            Self::RangeNotSatisfiable => "416 Range Not Satisfiable",
            Self::MisdirectedRequest => "421 Misdirected Request",
            Self::HeaderFieldsTooLarge => "431 Request Header Fields Too Large",
            Self::InternalServerError => "500 Internal Server Error",
            Self::ServiceUnavailable => "503 Service Unavailable",
            Self::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }

    /// What an answer says that has no other content.
    pub fn text(self) -> &'static str {
        match self {
            Self::MisdirectedRequest => {
                "421 Misdirected Request: this server is asked for over http:// by an IP address, by localhost, or by a name that \
                 it was given (kelvin serve --host NAME)"
            }
            other => other.line(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_line_begins_with_code() {
        for status in [
            Status::Ok,
            Status::NotModified,
            Status::MisdirectedRequest,
            Status::HeaderFieldsTooLarge,
            Status::VersionNotSupported,
        ] {
            assert!(status.line().starts_with(&format!("{} ", status as u16)));
            assert!(status.text().starts_with(status.line()));
        }
    }
}
