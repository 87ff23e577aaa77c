//! Comparisons of calls, tasks and switches in words.

use kelvin_core::catalogue::mem::PageSize;
use kelvin_core::catalogue::os::{RESIDENT, WokenTask};
use kelvin_core::units::bytes;
use kelvin_core::{Case, Name, RatioQuestion};

use super::{ComparedText, placement_text, ratio_text};

impl ComparedText<'_> {
    /// The sentence of a question about the operating system.
    pub(super) fn system_sentence(&self, question: RatioQuestion) -> String {
        let claim = match question {
            RatioQuestion::SystemCallBesideCall => "a system call takes longer than a function call".to_owned(),
            RatioQuestion::ForkBesideThread => {
                format!("a fork of {} takes longer than creating a thread", process_text(&self.other.case))
            }
            RatioQuestion::ProcessSwitchBesideThread => {
                format!(
                    "a switch between processes {} takes longer than between threads",
                    token_channel(self.other.metric)
                )
            }
            _ => format!(
                "{} {} wakes a process later than a thread",
                placement_text(&self.other.case),
                waited_for_text(&self.other.case)
            ),
        };
        format!("{claim}: {}, {}", ratio_text(&self.ratio, "as long"), self.amounts())
    }
}

/// `a process with 64 MiB in huge pages`.
fn process_text(case: &Case) -> String {
    let Some(resident) = RESIDENT.number_in(case) else { return "a small process".to_owned() };
    let pages = if PageSize::of(case) == Some(PageSize::Huge) { "huge" } else { "base" };
    format!("a process with {} in {pages} pages", bytes(resident))
}

/// How tasks pass a token, by the last word of the metric.
fn token_channel(metric: Name) -> &'static str {
    match metric.as_str().rsplit('.').next() {
        Some("pipe") => "by pipes",
        Some("futex") => "by a futex",
        Some("eventfd") => "by eventfds",
        Some("condvar") => "by a condition variable",
        _ => "by yielding",
    }
}

/// What a task waits for that is woken.
fn waited_for_text(case: &Case) -> &'static str {
    match WokenTask::of(case) {
        Some(WokenTask::ThreadPipe | WokenTask::ProcessPipe) => "a pipe",
        Some(WokenTask::ThreadFutex | WokenTask::ProcessFutex) => "a futex",
        _ => "a condition variable",
    }
}
