//! Limits of the number of CSI volumes of a node.

use crate::scheduler::cluster::node::Node;
use crate::scheduler::cluster::pod::Placed;
use crate::scheduler::plugins::volumes::Volumes;
use std::collections::BTreeMap;
use steersman::ObjectKey;

const TOO_MANY: &str = "node(s) exceed max volume count";

impl Volumes {
    /// Whether a node can have the CSI volumes of another Pod too.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(crate) fn within_limits(&self, pod: &Placed, node: &Node) -> Result<(), &'static str> {
        if pod.claims.is_empty() {
            return Ok(());
        }
        let mut new = self.csi_volumes(pod);
        if new.is_empty() {
            return Ok(());
        }
        let Some(csi_node) = self.csi_nodes.get(&*node.name) else { return Ok(()) };
        let mut there: BTreeMap<String, String> = BTreeMap::new();
        for pod in &node.pods {
            there.extend(self.csi_volumes(pod));
        }
        new.retain(|volume, _| !there.contains_key(volume));
        for (driver, most) in csi_node.drivers.iter().filter_map(|(driver, most)| Some((driver, (*most)?))) {
            let count = |volumes: &BTreeMap<String, String>| volumes.values().filter(|known| *known == driver).count();
            let n_new = count(&new);
            let n_all = i64::try_from(count(&there).saturating_add(n_new)).unwrap_or(i64::MAX);
            if 0 < n_new && most < n_all {
                return Err(TOO_MANY);
            }
        }
        Ok(())
    }

    /// The CSI volumes of a Pod, with their drivers.
    fn csi_volumes(&self, pod: &Placed) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for name in &pod.claims {
            let key = ObjectKey::namespaced(&pod.identity.namespace, name);
            let Some(claim) = self.claims.get(&key) else { continue };
            let known = self.volumes.get(&claim.volume).map(|volume| volume.csi.clone());
            let source = match known {
                Some(source) => source,
                // The volume will be provisioned by the provisioner of its class.
                None => self.classes.get(&claim.class).map(|class| (class.provisioner.clone(), key.to_string())),
            };
            if let Some((driver, handle)) = source {
                found.insert(format!("{driver}/{handle}"), driver);
            }
        }
        found
    }
}
