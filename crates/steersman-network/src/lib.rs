//! The Network operator: Network objects made real in OpenStack Neutron.
