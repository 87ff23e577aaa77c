//! The calling thread on CPUs of its own.

/// The calling thread, and what it starts, may run on some CPUs only until this is dropped.
#[derive(Debug)]
pub(crate) struct PinnedThread {
    before: Vec<u32>,
}

impl PinnedThread {
    /// Keeps it to these.
    ///
    /// # Errors
    /// Those of sched_setaffinity(2).
    pub fn pin(cpus: &[u32]) -> std::io::Result<Self> {
        let before = kelvin_sys::cpu::allowed()?;
        kelvin_sys::cpu::pin(cpus)?;
        Ok(Self { before })
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        // It could run there before; if that is not so any more, it stays where it is.
        let _ = kelvin_sys::cpu::pin(&self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_is_restored() {
        let before = kelvin_sys::cpu::allowed().unwrap();
        let pinned = PinnedThread::pin(&before[..1]).unwrap();
        assert_eq!(kelvin_sys::cpu::allowed().unwrap(), before[..1]);
        drop(pinned);
        assert_eq!(kelvin_sys::cpu::allowed().unwrap(), before);
    }
}
