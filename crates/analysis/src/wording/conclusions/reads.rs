//! Comparisons of reads in words: by their order, their threads, the page cache and their blocks.

use kelvin_core::catalogue::file::{BLOCK, BYTES, FileSharing, THREAD_COUNT};
use kelvin_core::units::{bytes, number, percent, value_text};
use kelvin_core::{Case, RatioQuestion};

use super::{ComparedText, amount_text, curve_point, ratio_text, share_text, state_and_file};

impl ComparedText<'_> {
    /// The sentence of a question about reads.
    pub(super) fn read_sentence(&self, question: RatioQuestion) -> String {
        let base = &self.base.case;
        match question {
            RatioQuestion::RandomBesideInOrder => format!(
                "{}: blocks at random take longer than in order: {}, {}",
                state_and_file(base),
                ratio_text(&self.ratio, "as long"),
                self.amounts()
            ),
            RatioQuestion::TwoThreadsBesideOne => format!(
                "{}: a read takes longer beside a second thread: {}, {}",
                shared_device(base),
                ratio_text(&self.ratio, "as long"),
                self.amounts()
            ),
            RatioQuestion::BeyondEqualShares => self.beyond_equal_shares(),
            RatioQuestion::CachedBesideUncached => format!(
                "in blocks of {} cached reads are faster than uncached ones: {}, {}",
                bytes(BLOCK.number_in(base).unwrap_or(0)),
                ratio_text(&self.ratio, "as fast"),
                self.amounts()
            ),
            _ => format!(
                "{} {} is too large: the rate falls below {} of the best: it is {} of that with {}, {}",
                curve_point(self.other).0,
                curve_point(self.other).1,
                percent(self.limit),
                share_text(&self.ratio),
                curve_point(self.base).1,
                amount_text(self.base)
            ),
        }
    }

    /// The base is the time of a read with few threads, as many times as there are more.
    fn beyond_equal_shares(&self) -> String {
        let [few, many] = [self.base, self.other].map(|side| THREAD_COUNT.number_in(&side.case).unwrap_or(1));
        let more = many as f64 / few as f64;
        format!(
            "{}: from {few} to {many} threads the time of a read grows by more than their number: it is {}, for {} times as many \
             threads, {} against {}",
            shared_device(&self.base.case),
            ratio_text(&self.ratio.divided_by(1.0 / more), "as long"),
            number(more),
            amount_text(self.other),
            value_text(self.base.value / more, self.base.unit)
        )
    }
}

/// `direct reads of 1 MiB, each thread its own file of 64 MiB`.
fn shared_device(case: &Case) -> String {
    let files = match FileSharing::of(case) {
        Some(FileSharing::Shared) => "all threads one file",
        _ => "each thread its own file",
    };
    let of = |size: Option<u64>| size.map_or_else(String::new, |size| format!(" of {}", bytes(size)));
    format!("direct reads{}, {files}{}", of(BLOCK.number_in(case)), of(BYTES.number_in(case)))
}
