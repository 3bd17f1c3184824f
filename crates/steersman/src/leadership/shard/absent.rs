//! Replaces sharding where the feature `shard` is off: types without values, so that the life of a manager is written
//! once.

use std::sync::Arc;

use kube::Client;

use crate::control::fence::{Fence, KeySource, Pass};
use crate::control::queue::WorkQueue;
use crate::shared::key::ObjectKey;

/// No error is possible without groups.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {}

#[derive(Clone, Copy)]
enum Never {}

pub(crate) struct ShardOptions {
    never: Never,
}

#[derive(Clone)]
pub(crate) struct Shards {
    never: Arc<Never>,
}

pub(crate) struct ShardMember {
    never: Never,
}

impl Fence for Shards {
    fn begin(&self, _: &ObjectKey) -> Option<Box<dyn Pass>> {
        match *self.never {}
    }

    fn feed(&self, _: &WorkQueue<ObjectKey>, _: KeySource) {
        match *self.never {}
    }
}

impl ShardMember {
    pub(crate) fn with_shards(_: Client, options: ShardOptions, _: Shards) -> Result<Self, ShardError> {
        match options.never {}
    }

    pub(crate) async fn run(self, _: impl Future<Output = ()>) {
        match self.never {}
    }
}
