//! What of a load was no right answer, and what did not come, with what to change.

use std::io::{self, Write};

use kelvin_core::Unit;
use kelvin_core::load::{LoadResult, OfferedLoad, RequestErrors};
use kelvin_core::units::{self, plural};

use super::sentence::write_paragraph;

/// Requests without a right answer, of one generator or of several.
#[derive(Clone, Copy, Debug)]
pub struct Failures<'l> {
    pub errors: &'l RequestErrors,
    pub unanswered: u64,
    pub resent: u64,
    pub offered: OfferedLoad,
}

impl<'l> Failures<'l> {
    /// Those of a load.
    pub fn of(load: &'l LoadResult) -> Self {
        Self { errors: &load.errors, unanswered: load.unanswered, resent: load.resent, offered: load.offered }
    }

    /// Writes them.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let RequestErrors { first, status, no_port, .. } = self.errors;
        let parts = self.counts();
        match self.errors.count() + self.unanswered {
            0 => write_paragraph(out, format_args!("no errors"))?,
            count => write_paragraph(out, format_args!("{}: {}", plural(count, "error"), parts.join(", ")))?,
        }
        if let Some(first) = first {
            write_paragraph(out, format_args!("the first: {first}"))?;
        }
        if *no_port > 0 {
            let reason = "this host has no port left: each connection that ends holds one for a minute (TIME_WAIT)";
            let remedy = "widen net.ipv4.ip_local_port_range, or have the server keep connections (keep-alive)";
            write_paragraph(out, format_args!("{reason}: {remedy}"))?;
        }
        if first.as_ref().is_some_and(|first| first.starts_with("TLS: ") && first.contains("certificate")) {
            write_paragraph(out, format_args!("--ca FILE names trusted certificates; --insecure trusts any"))?;
        }
        if status.keys().any(|status| (300..400).contains(status)) {
            write_paragraph(out, format_args!("redirects are not followed: name the URL that they lead to"))?;
        }
        if self.resent > 0 {
            let count = units::count(self.resent);
            write_paragraph(
                out,
                format_args!("{count} sent again, because the server closed an idle connection or refused them"),
            )?;
        }
        self.write_due(out)
    }

    /// What became due at a rate, and what was not sent or answered in time.
    fn write_due(&self, out: &mut dyn Write) -> io::Result<()> {
        if let OfferedLoad::Rate { due, delayed, .. } = self.offered {
            write_paragraph(out, format_args!("{} became due", units::value_text(due, Unit::PerSecond)))?;
            if delayed > 0 {
                write_paragraph(
                    out,
                    format_args!("{} waited for a free connection: see --connections", units::count(delayed)),
                )?;
            }
            if self.unanswered > 0 {
                let count = units::count(self.unanswered);
                let text = "without an answer, with the time that they had waited";
                write_paragraph(out, format_args!("response times have the {count} {text}"))?;
            }
        }
        Ok(())
    }

    /// Each kind of them that there was, with its count.
    fn counts(&self) -> Vec<String> {
        let errors = self.errors;
        let kinds = [
            (errors.connect, "not connected"),
            (errors.no_port, "without a local port to connect from"),
            (errors.closed, "closed without an answer"),
            (errors.reset, "refused or reset by the server"),
            (errors.timed_out, "timed out"),
            (errors.short, "short bodies"),
            (errors.malformed, "no HTTP"),
            (errors.wrong, "wrong bytes"),
            (self.unanswered, "without an answer"),
        ];
        let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
        let kinds = kinds.map(|(count, name)| format!("{} {name}", units::count(count)));
        let status = errors.status.iter().map(|(status, count)| format!("{} status {status}", units::count(*count)));
        kinds.chain(status).collect()
    }
}
