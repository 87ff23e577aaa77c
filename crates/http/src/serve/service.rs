//! What every model serves with.

use std::net::TcpListener;
use std::sync::Arc;

use crate::serve::document_root::DocumentRoot;
use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::open_file_cache::FileBudget;
use crate::serve::send_strategy::SendStrategy;
use crate::serve::site::SiteConfig;

/// What every model serves with: its socket, its limits, and what each thread or process answers from.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// The socket that listens, without waiting.
    pub listener: Arc<TcpListener>,
    /// The directory that is served.
    pub root: Arc<DocumentRoot>,
    /// How it answers, and the limits.
    pub site: SiteConfig,
    /// Threads that serve, of a model that has a fixed number.
    pub threads: usize,
    pub send_strategy: SendStrategy,
    /// Files that each thread holds open, at most, and what is left to all of them.
    pub files_per_thread: usize,
    pub file_budget: Arc<FileBudget>,
    /// Where connections are registered, if they are tracked. Then nothing is served below `.kelvin` in the root.
    pub sampler: Option<Arc<InFlightSampler>>,
}
