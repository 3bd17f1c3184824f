//! Replaces the election where the feature `election` is off: types without values, so that the life of a manager is
//! written once.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use crate::control::fence::{Fence, KeySource, Pass};
use crate::control::queue::WorkQueue;
use crate::shared::key::ObjectKey;

/// No error is possible without elections.
#[derive(Debug, thiserror::Error)]
pub enum ElectionError {}

#[derive(Debug)]
pub(crate) struct ElectionOptions {
    pub(crate) lease: Duration,
    pub(crate) renew_deadline: Duration,
    never: Never,
}

#[derive(Clone, Copy, Debug)]
enum Never {}

#[derive(Debug)]
pub(crate) struct Leadership {
    never: Never,
}

pub(crate) struct Election {
    never: Never,
}

impl Leadership {
    pub(crate) async fn lost(&self) {
        match self.never {}
    }

    pub(crate) fn give_up(&self) {
        match self.never {}
    }

    pub(crate) fn lease(&self) -> &str {
        match self.never {}
    }

    pub(crate) fn is_leading(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn check(&self, _: Duration) -> Result<(), ElectionError> {
        match self.never {}
    }
}

impl Fence for Arc<Leadership> {
    fn begin(&self, _: &ObjectKey) -> Option<Box<dyn Pass>> {
        match self.never {}
    }

    fn feed(&self, _: &WorkQueue<ObjectKey>, _: KeySource) {
        match self.never {}
    }
}

impl Election {
    pub(crate) fn with_leadership(
        _: Client,
        options: ElectionOptions,
        _: Arc<Leadership>,
    ) -> Result<Self, ElectionError> {
        match options.never {}
    }

    pub(crate) fn leadership(&self) -> &Arc<Leadership> {
        match self.never {}
    }

    pub(crate) async fn acquire(&mut self) {
        match self.never {}
    }

    pub(crate) async fn hold(&mut self) {
        match self.never {}
    }

    pub(crate) async fn release(&mut self) {
        match self.never {}
    }
}
