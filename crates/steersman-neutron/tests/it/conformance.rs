//! The conformance suite, over every cloud.

use std::sync::Arc;

use steersman_neutron::{Faulty, Simulated, conformance, for_each_case};

macro_rules! over_memory {
    ($($case:ident)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $case() {
                super::conformance::$case(&super::Simulated::in_memory()).await;
            })*
        }
    };
}

macro_rules! over_disk {
    ($($case:ident)*) => {
        mod disk {
            $(#[tokio::test]
            async fn $case() {
                let dir = tempfile::tempdir().unwrap();
                super::conformance::$case(&super::Simulated::open(dir.path()).unwrap()).await;
            })*
        }
    };
}

macro_rules! over_neutron {
    ($($case:ident)*) => {
        mod neutron {
            $(#[tokio::test]
            async fn $case() {
                let Some(server) = crate::neutron::headers() else { return };
                super::conformance::$case(&server.client()).await;
            })*
        }
    };
}

for_each_case!(over_memory);
for_each_case!(over_disk);
for_each_case!(over_neutron);

#[tokio::test]
async fn a_faulty_cloud_without_faults_is_the_cloud() {
    let cloud = Faulty::new(Arc::new(Simulated::in_memory()));
    conformance::a_second_create_makes_a_second_network(&cloud).await;
    conformance::subnets_are_found_by_network_and_cidr(&Faulty::new(Arc::new(Simulated::in_memory()))).await;
}
