//! Which part of a load each of several threads has. Pure: the parts of all threads together are the load of one.

/// The part of one thread: of what is numbered from 0 on, its own number and every `threads`-th after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadShare {
    number: u32,
    threads: u32,
}

impl ThreadShare {
    /// That of a thread which is alone.
    pub const WHOLE: Self = Self { number: 0, threads: 1 };

    /// Those of this many threads, at least one.
    pub fn all(threads: u32) -> impl Iterator<Item = Self> {
        (0..threads).map(move |number| Self { number, threads })
    }

    /// The number of the thread.
    pub fn number(self) -> u32 {
        self.number
    }

    /// How many threads there are.
    pub fn threads(self) -> u32 {
        self.threads
    }

    /// How many of `total` are in this part.
    pub fn count_of(self, total: u32) -> u32 {
        total / self.threads + u32::from(self.number < total % self.threads)
    }

    /// The items of this part, in their order.
    pub fn select<I: Iterator>(self, items: I) -> impl Iterator<Item = I::Item> {
        items.skip(self.number as usize).step_by(self.threads as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_in_one_part() {
        for threads in 1..=5 {
            for total in 0..=12 {
                let parts: Vec<Vec<u32>> =
                    ThreadShare::all(threads).map(|share| share.select(0..total).collect()).collect();
                let counts: Vec<u32> = ThreadShare::all(threads).map(|share| share.count_of(total)).collect();
                assert_eq!(counts, parts.iter().map(|part| part.len() as u32).collect::<Vec<_>>());
                assert!(parts.iter().all(|part| part.is_sorted()));
                let mut union = parts.concat();
                union.sort_unstable();
                assert_eq!(union, (0..total).collect::<Vec<_>>(), "{total} over {threads}");
            }
        }
        assert_eq!(ThreadShare::WHOLE.select(0..3).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
