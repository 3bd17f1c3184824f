package envtest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

var kites = &scheme.Builder{GroupVersion: schema.GroupVersion{Group: "envtest.example.com", Version: "v1"}}

// Kite is the kind of crds/kites.yaml.
type Kite struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              KiteSpec   `json:"spec,omitempty"`
	Status            KiteStatus `json:"status,omitempty"`
}

type KiteSpec struct {
	Length int `json:"length,omitempty"`
}

type KiteStatus struct {
	Line string `json:"line,omitempty"`
}

type KiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Kite `json:"items"`
}

func (k *Kite) DeepCopyObject() runtime.Object {
	copied := *k
	copied.ObjectMeta = *k.ObjectMeta.DeepCopy()
	return &copied
}

func (l *KiteList) DeepCopyObject() runtime.Object {
	copied := &KiteList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopyObject().(*Kite))
	}
	return copied
}
