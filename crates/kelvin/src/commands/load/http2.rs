//! What HTTP/2 did in a load, where it explains the figures.

use std::io::{self, Write};

use kelvin_core::load::Http2Figures;
use kelvin_core::units::{self, plural};

use super::sentence::write_paragraph;

/// Writes it; nothing of a load by HTTP/1.1.
pub fn write_http2(http2: Option<&Http2Figures>, out: &mut dyn Write) -> io::Result<()> {
    let Some(http2) = http2 else { return Ok(()) };
    let &Http2Figures { streams, allowed_streams, limited_connections, limited_requests, goaways, refused } = http2;
    write_paragraph(
        out,
        format_args!("HTTP/2: up to {} in flight on each connection", plural(streams.into(), "request")),
    )?;
    if let Some(allowed) = allowed_streams {
        let (connections, requests) = (plural(limited_connections, "connection"), plural(limited_requests, "request"));
        let limit = format!("the server allowed {allowed} on {connections}, for which {requests} waited");
        write_paragraph(out, format_args!("{limit}: give --streams {}", allowed.max(1)))?;
    }
    if goaways > 0 {
        write_paragraph(out, format_args!("the server had {} end (GOAWAY)", plural(goaways, "connection")))?;
    }
    if refused > 0 {
        let count = units::count(refused);
        write_paragraph(
            out,
            format_args!("{count} refused by the server before it did anything (REFUSED_STREAM, GOAWAY)"),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(http2: Option<&Http2Figures>) -> String {
        let mut out = Vec::new();
        write_http2(http2, &mut out).unwrap();
        String::from_utf8(out).unwrap().replace('\n', " ")
    }

    #[test]
    fn limits_and_ends_are_told_where_there_were_any() {
        assert_eq!(text(None), "");
        let mut http2 = Http2Figures { streams: 10, ..Http2Figures::default() };
        assert_eq!(text(Some(&http2)), "HTTP/2: up to 10 requests in flight on each connection ");
        http2.add_allowed(usize::MAX);
        http2.add_allowed(4);
        (http2.limited_requests, http2.goaways, http2.refused) = (12, 1, 3);
        let text = text(Some(&http2));
        assert!(text.contains("the server allowed 4 on 1 connection, for which 12 requests waited: give --streams 4"));
        assert!(text.contains("had 1 connection end (GOAWAY)") && text.contains("3 refused by the server"), "{text}");
    }
}
