//! What a process has to undo if the job ends early: at most once, by whichever thread ends the process.

use std::fmt;
use std::sync::{Arc, Mutex};

use kelvin_sys::lock;

type Action = Box<dyn FnOnce() + Send>;

/// Actions that end what this process began, such as removing files.
#[derive(Clone, Default)]
pub struct Cleanup(Arc<Mutex<Vec<Action>>>);

impl Cleanup {
    /// Adds an action.
    pub fn add(&self, action: impl FnOnce() + Send + 'static) {
        lock(&self.0).push(Box::new(action));
    }

    /// Does all actions that were added, the last one first.
    pub fn run(&self) {
        let actions = std::mem::take(&mut *lock(&self.0));
        actions.into_iter().rev().for_each(|action| action());
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Cleanup({} actions)", lock(&self.0).len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_done_once_and_in_reverse() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let cleanup = Cleanup::default();
        for number in 0..3 {
            let done = Arc::clone(&done);
            cleanup.clone().add(move || lock(&done).push(number));
        }
        cleanup.run();
        cleanup.run();
        assert_eq!(*lock(&done), [2, 1, 0]);
    }
}
