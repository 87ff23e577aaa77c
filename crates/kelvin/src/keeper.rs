//! Who keeps a run while it is measured, and what its plan learns from.

use kelvin_model::{Headline, Run};
use kelvin_store::{AppendError, Labels, Recorder, Store};

/// A store that keeps a run.
pub struct Keeper {
    store: Store,
    labels: Labels,
}

impl Keeper {
    /// Keeps a run with these labels in a store.
    pub fn new(store: Store, labels: Labels) -> Self {
        Self { store, labels }
    }

    /// The store that the run is for, from which its plan learns.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Stores the run event by event.
    pub fn recorder(&self) -> Recorder<'_> {
        self.store.recorder().labelled(self.labels.clone())
    }

    /// Stores what is known only at the end of the run.
    ///
    /// # Errors
    /// As of [`Store::keep`].
    pub fn keep(&self, run: &Run, headlines: &[Headline]) -> Result<(), AppendError> {
        self.store.keep(run, headlines)
    }
}
