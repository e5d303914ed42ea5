// This file only marks the directory as a module of its own, so that Kubernetes
// never enters the go.mod of Outrider. Builds take the requirements of one version
// instead: go build -modfile=v1.34/go.mod. Rewrite those with test/cluster/kubemod.
module outrider.dev/test/cluster/kube

go 1.26
