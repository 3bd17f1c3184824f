//! The contract that every engine keeps.

use crate::support::cluster::Cluster;
use crate::support::connect;
use std::cell::{Cell, RefCell};
use steersman_machinery::Revision;
use steersman_storage::conformance::{self, Counter};
use steersman_storage::kv::Kv;
use steersman_storage_etcd::Restore;

#[tokio::test]
async fn one_member_keeps_the_contract() {
    let Some(cluster) = Cluster::start(1) else { return };
    keeps_the_contract(&cluster).await;
}

#[tokio::test]
async fn three_members_keep_the_contract() {
    let Some(cluster) = Cluster::start(3) else { return };
    keeps_the_contract(&cluster).await;
}

async fn keeps_the_contract(cluster: &Cluster) {
    let n = Cell::new(0);
    conformance::kv(async || {
        n.set(n.get() + 1);
        connect(cluster.options().prefix(format!("/{}", n.get()))).await as _
    })
    .await;
}

#[tokio::test]
async fn a_restored_store_keeps_the_contract() {
    let Some(cluster) = Cluster::start(1) else { return };
    let n = Cell::new(0);
    conformance::kv(async || {
        n.set(n.get() + 1);
        let options = cluster.options().prefix(format!("/{}", n.get()));
        Restore::begin(options.clone(), Revision(1_000_000)).await.unwrap().finish().await.unwrap();
        let kv = connect(options).await;
        assert!(Revision(1_000_000) < kv.revision().await.unwrap());
        kv as _
    })
    .await;
}

#[tokio::test]
async fn everything_is_there_after_a_crash_of_etcd() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (cluster, is_first) = (RefCell::new(cluster), Cell::new(true));
    conformance::durable(Counter::Shared, async || {
        let options = {
            let member = &mut cluster.borrow_mut().members[0];
            if !is_first.replace(false) {
                member.kill();
                member.start_again();
            }
            steersman_storage_etcd::Options::new(vec![member.url.clone()])
        };
        connect(options).await as std::sync::Arc<dyn Kv>
    })
    .await;
}
