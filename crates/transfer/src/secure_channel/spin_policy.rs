//! When an end looks for the next bytes before it sleeps.

/// After looking in vain, most waits without looking.
const MAX_SKIPPED_SPINS: u32 = 64;

/// Whether it is worth looking for bytes before sleeping. Not where they take long to come, and not on one processor, which the
/// other end may need to send them.
pub(super) struct SpinPolicy {
    is_enabled: bool,
    /// Waits that pass without looking, and how many passed.
    to_skip: u32,
    skipped: u32,
}

impl SpinPolicy {
    pub(super) fn new() -> Self {
        let is_enabled = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        Self { is_enabled, to_skip: 0, skipped: 0 }
    }

    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.is_enabled && self.skipped >= self.to_skip;
        self.skipped = if is_due { 0 } else { self.skipped + 1 };
        is_due
    }

    pub(super) fn on_success(&mut self) {
        self.to_skip = 0;
    }

    pub(super) fn on_failure(&mut self) {
        self.to_skip = (2 * self.to_skip).clamp(1, MAX_SKIPPED_SPINS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_spins_back_off() {
        let mut policy = SpinPolicy { is_enabled: true, to_skip: 0, skipped: 0 };
        let mut waits_until_due = || {
            let waits = (1..).find(|_| policy.is_due());
            policy.on_failure();
            waits
        };
        let waits: Vec<u32> = std::iter::from_fn(&mut waits_until_due).take(9).collect();
        assert_eq!(waits, [1, 2, 3, 5, 9, 17, 33, 65, 65]);
        policy.on_success();
        assert!(policy.is_due() && policy.is_due());
        assert!(!SpinPolicy { is_enabled: false, to_skip: 0, skipped: 0 }.is_due());
    }
}
