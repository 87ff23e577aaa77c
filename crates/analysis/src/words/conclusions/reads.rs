//! Comparisons of reads in words: by their order, their threads, the page cache and their blocks.

use kelvin_catalogue::file::{BLOCK, BYTES, FileSharing, THREAD_COUNT};
use kelvin_model::units::{bytes, number, percent, plain};
use kelvin_model::{Case, RatioQuestion};

use super::{Compared, amount, curve, share, state_and_file, times};

impl Compared<'_> {
    /// The sentence of a question about reads.
    pub(super) fn of_reads(&self, question: RatioQuestion) -> String {
        let base = &self.base.case;
        match question {
            RatioQuestion::RandomBesideInOrder => format!(
                "{}: blocks at random take longer than in order: {}, {}",
                state_and_file(base),
                times(&self.ratio, "as long"),
                self.amounts()
            ),
            RatioQuestion::TwoThreadsBesideOne => format!(
                "{}: a read takes longer beside a second thread: {}, {}",
                shared(base),
                times(&self.ratio, "as long"),
                self.amounts()
            ),
            RatioQuestion::BeyondEqualShares => self.beyond_equal_shares(),
            RatioQuestion::CachedBesideUncached => format!(
                "in blocks of {} cached reads are faster than uncached ones: {}, {}",
                bytes(BLOCK.of(base).unwrap_or(0)),
                times(&self.ratio, "as fast"),
                self.amounts()
            ),
            _ => format!(
                "{} {} is too large: the rate falls below {} of the best: it is {} of that with {}, {}",
                curve(self.other).0,
                curve(self.other).1,
                percent(self.limit),
                share(&self.ratio),
                curve(self.base).1,
                amount(self.base)
            ),
        }
    }

    /// The base is the time of a read with few threads, as many times as there are more.
    fn beyond_equal_shares(&self) -> String {
        let [few, many] = [self.base, self.other].map(|side| THREAD_COUNT.of(&side.case).unwrap_or(1));
        let more = many as f64 / few as f64;
        format!(
            "{}: from {few} to {many} threads the time of a read grows by more than their number: it is {}, for {} times as many \
             threads, {} against {}",
            shared(&self.base.case),
            times(&self.ratio.over(1.0 / more), "as long"),
            number(more),
            amount(self.other),
            plain(self.base.value / more, self.base.unit)
        )
    }
}

/// `direct reads of 1 MiB, each thread its own file of 64 MiB`.
fn shared(case: &Case) -> String {
    let files = match FileSharing::of(case) {
        Some(FileSharing::Shared) => "all threads one file",
        _ => "each thread its own file",
    };
    let of = |size: Option<u64>| size.map_or_else(String::new, |size| format!(" of {}", bytes(size)));
    format!("direct reads{}, {files}{}", of(BLOCK.of(case)), of(BYTES.of(case)))
}
