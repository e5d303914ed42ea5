# Outrider's tasks. "make help" lists them.

GO      ?= go
CACHE   := .cache
ENVOY   ?= $(CACHE)/envoy/envoy
# What the commands and the demo call, and what the tests need besides: Debian's packages, each with
# the program or file by which build/packages.sh sees that it is there.
PACKAGES      := nftables=nft iptables=iptables-nft-save iproute2=ip util-linux=unshare procps=ps
TEST_PACKAGES := busybox-static=busybox containerd containernetworking-plugins=/usr/lib/cni/bridge ipset runc \
	chromium fonts-dejavu-core=/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf gcc libc6-dev=/usr/include/stdlib.h \
	curl default-jdk-headless=/usr/bin/javac nodejs=/usr/bin/node python3-grpcio=/usr/lib/python3/dist-packages/grpc/__init__.py
# KUBE=v1.36 is the other version of the test cluster, RUNTIME=containerd-2 its other runtime.
KUBE     ?= v1.34
RUNTIME  ?= containerd

export CGO_ENABLED ?= 0
# What is compiled serves all checkouts of this user, tests and commands alike: package build/commands
# says why gRPC's trace is left out.
export GOFLAGS += -trimpath -tags=grpcnotrace

.PHONY: help
help: ## list the tasks
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 16

.PHONY: deps test-deps packages test-packages
deps: packages $(ENVOY) ## install what the commands and the demo call: nftables, iptables, iproute2, Envoy
	$(GO) mod download
	$(ENVOY) --version
packages:
	@build/packages.sh $(PACKAGES)
test-deps: deps test-packages ## and what the tests need besides: containerd, runc, chromium, gcc, Java, Node
test-packages:
	@build/packages.sh $(TEST_PACKAGES)

# ENVOY=/some/envoy uses another binary, and nothing is fetched.
$(CACHE)/envoy/envoy: build/envoy.txt build/envoy.sha256
	build/envoy.sh $(CACHE)/envoy

.PHONY: build
build: ## the commands, into bin/
	$(GO) run ./build/commands/cmd bin

.PHONY: images
images: build $(ENVOY) ## container images for this machine as OCI tarballs, into bin/images; no container engine
	$(GO) run ./build/images -envoy $(ENVOY)

# For both architectures, with Debian's C library and not this machine's:
#   make images-push HUB=registry.example/outrider TAG=1.2.3
HUB ?= outrider.dev
TAG ?= dev
PROXY_PARTS := $(CACHE)/envoy-amd64/envoy $(CACHE)/envoy-arm64/envoy $(CACHE)/libc-amd64/version $(CACHE)/libc-arm64/version
.PHONY: images-all images-push
images-all: $(PROXY_PARTS) ## images for amd64 and arm64 under one name as OCI layouts, into bin/oci
	$(GO) run ./build/commands/cmd bin/linux_amd64 linux/amd64
	$(GO) run ./build/commands/cmd bin/linux_arm64 linux/arm64
	$(GO) run ./build/images -arch amd64,arm64 -bin bin/linux_{arch} -envoy $(CACHE)/envoy-{arch}/envoy -libc $(CACHE)/libc-{arch} -o oci:bin/oci -hub $(HUB) -tag $(TAG)
images-push: images-all ## push them, with docker's logins: HUB=registry.example/outrider TAG=1.2.3
	for i in outriderd outrider-proxy outrider-node; do $(GO) tool -modfile=build/tools/go.mod crane push bin/oci/$$i $(HUB)/$$i:$(TAG) || exit 1; done
$(CACHE)/envoy-amd64/envoy: build/envoy.txt build/envoy.sha256
	build/envoy.sh $(@D) x86_64
$(CACHE)/envoy-arm64/envoy: build/envoy.txt build/envoy.sha256
	build/envoy.sh $(@D) aarch64
$(CACHE)/libc-%/version: build/libc.txt
	build/libc.sh $(@D) $*

.PHONY: release reproducible
release: ## archives of the command outrider, with checksums.txt, into bin/release
	build/release.sh bin/release
reproducible: ## images and archives of the commit twice, from two clones with empty caches; fails if a byte differs
	build/reproducible.sh $(abspath $(CACHE))
# The tiers, each a list of steps: build/tiers. Every step runs, and the last line says what the result
# is worth.
TIER := $(GO) run ./build/tiers
.PHONY: quick test check e2e nightly
quick: ## unit tests of what changed, and of what depends on it, but not bench/; before every commit
	@$(TIER) quick
test: ## units, and suites on real Envoy, nftables and browser; installs what it needs (root, or it says what is not tested)
	@$(TIER) test
check: ## format, vet, other systems, staticcheck, tidy modules, what must stay small
	@$(TIER) check
e2e: ## the promise on a real kubelet: some 80 starts of pods; the first time it builds Kubernetes (root)
	@$(TIER) e2e
PART ?= 1/1
nightly: ## everything: all starts, mutants, attacks, fuzzing, load; hours; PART=2/4 is one of four parts, "go run ./build/tiers -list nightly" prints it (root)
	@$(TIER) -part $(PART) nightly

.PHONY: centres
centres: $(CACHE)/configcentres/consul $(CACHE)/configcentres/nacos/nacos.jar ## the suites of bootconfig's adapters on a real Consul and Nacos, which it builds first, 10 minutes (root, Java 17, Maven)
	@for m in consul nacos; do (set -x; cd bootconfig/$$m && $(GO) test -count=1 -timeout 10m -v -run TestA ./...) || exit 1; done
$(CACHE)/configcentres/consul: test/centres/consul/go.mod
	cd test/centres/consul && $(GO) build -ldflags='-s -w' -o $(abspath $@) github.com/hashicorp/consul
$(CACHE)/configcentres/nacos/nacos.jar: $(wildcard test/centres/nacos/*)
	mvn -q -B -f test/centres/nacos/pom.xml package

.PHONY: validation
validation: ## does the API server's own code take every pod that is injected, and Kubernetes 1.29 to 1.36 the chart? prints counts
	cd test/validation && $(GO) test -count=1 -timeout 60m -v ./...

.PHONY: corpus
corpus: ## how many incidents of testdata are diagnosed right: a confusion matrix for each split, and the sets with a first look
	@$(GO) test -count=1 -v -run 'TestIncidents$$' ./internal/doctor/diagnose | grep -E '^ +corpus_test|^(ok|FAIL|---)'
	@$(GO) test -count=1 -v -run 'TestLooks$$' ./cmd/outrider | grep -E '^ +looks_test|^(ok|FAIL|---)'

.PHONY: house
house: ## print the lines of each feature, and measure what is to stay small
	@$(GO) run ./build/house

.PHONY: istio-names
istio-names: ## does the table of Istio's settings have all that Istio publishes? test/istioapi/names_test.go says how to get the next
	cd test/istioapi && $(GO) test -count=1 ./...

.PHONY: fuzz
FUZZTIME ?= 60s
fuzz: ## every fuzz target for FUZZTIME (60s), one on each core; all of them, red at the end
	@GO="$(GO)" build/fuzz.sh $(FUZZTIME)

.PHONY: explain
PAIRS ?= 2000
explain: ## random flags and connections: does the kernel do what "rules --explain" prints (root)
	OUTRIDER_PAIRS=$(PAIRS) $(GO) test ./test/netns -run 'TestExplain$$' -count=1 -v -timeout 30m

.PHONY: policy-matrix
policy-matrix: deps ## what AuthorizationPolicies do with paths and hosts that servers read differently, in a real Envoy: prints two tables (root)
	$(GO) test -count=1 -v -run '^TestMatrix$$' ./test/mesh

.PHONY: attack
attack: ## hostile callers against the real commands, within their memory limits; prints a table (root)
	$(GO) test -count=1 -timeout 60m -v ./test/attack -long

.PHONY: storm
storm: ## 5,000 simulated proxies connect again after each of three kills of outriderd; prints times and memory
	$(GO) test -count=1 -timeout 30m -v ./test/storm -proxies 5000 -kills 3

.PHONY: demo demo-parking
demo: build $(ENVOY) ## the race at a pod's start, and the ways out, with real parts; under a minute (root)
	@bin/outrider demo --envoy $(ENVOY) --report bin/demo.html
demo-parking: build ## parking alone, seen on this machine; five seconds (root)
	OUTRIDER_AGENT=$(CURDIR)/bin/outrider-agent examples/parking/run.sh

.PHONY: bench
bench: ## measure; prints tables, asserts nothing (root)
	$(GO) run ./bench/capture
	$(GO) run ./bench/agent
	$(GO) test -run '^$$' -bench Telemetry -benchtime 1x ./test/mesh
	$(GO) test -run '^$$' -bench 'Explore|Run|Pod|InjectFile|Review|Scan|Fleet' -benchmem -cpu 1 ./internal/doctor/evidence/gather ./internal/doctor/diagnose/calls ./internal/doctor/diagnose/page ./internal/doctor/verify ./internal/doctor/simulate ./internal/core/pod/inject ./internal/core/pod/offline ./internal/core/controlplane/webhook
	cd resilience && $(GO) test -run '^$$' -bench . -cpu 1 .
	$(GO) -C bootconfig test -run '^$$' -bench . -benchmem

.PHONY: campaign
campaign: ## kill 200 captures, start 20 at once 100 times, on each backend; 30 minutes (root)
	OUTRIDER_KILLS=200 OUTRIDER_ROUNDS=100 $(GO) test -count=1 -timeout 90m -v -run 'TestKilledCaptures|TestCapturesAtOnce' ./test/netns

# Whole suites, of which "make e2e" takes a sample. Each brings up a cluster of its own; a cold start
# builds it first.
E2E := OUTRIDER_E2E=1 OUTRIDER_NIGHTLY=1 $(GO) test -count=1 -timeout 60m -p 1 -parallel 4
.PHONY: e2e-pods e2e-all e2e-node e2e-skew load load-node bench-cluster
e2e-pods: ## every case of pods; 25 minutes (root)
	$(E2E) -v ./test/e2e
e2e-all: ## the order of pods on both versions of Kubernetes (root)
	for v in v1.34 v1.36; do KUBE=$$v $(E2E) -v -run 'TestOrder|TestGraph|TestEnds|TestTheProxyIsLate|TestFaults' ./test/e2e || exit 1; done
e2e-node: ## every case with the plugins of the node, on containerd 2; 20 minutes (root); KUBE=v1.36 is the other version
	RUNTIME=containerd-2 $(E2E) -v ./test/e2e
e2e-skew: ## this version and the one before at once: upgrade and rollback under load, without and with the plugins of the node; 20 minutes (root); PREVIOUS=v1.2.3 is another one before
	for r in containerd containerd-2; do RUNTIME=$$r OUTRIDER_SKEW=1 $(E2E) -v -run TestTwoVersions ./test/e2e || exit 1; done
load-node: ## the node's plugins at size: 200 pods under 50 kills, 20 reboots, 150 pods in three waves; 40 minutes (root); KUBE=v1.36 is the other version
	RUNTIME=containerd-2 OUTRIDER_CALLS=$(CALLS) $(subst 60m,90m,$(E2E)) -v -run 'TestNode|TestRuntimeRestarts|TestFiftyAtOnce/gate' ./test/e2e
CALLS ?= 50000
load: ## roll-outs (CALLS for each way to order and kind of application), kills and restarts on a real kubelet; 2.5 hours (root)
	OUTRIDER_CALLS=$(CALLS) OUTRIDER_RATE=34 $(subst 60m,240m,$(E2E)) -v -run 'TestRollouts|UnderLoad' ./test/e2e
bench-cluster: ## what each way to start a pod costs on a real kubelet; 15 minutes (root)
	$(GO) run ./bench/cluster -kube $(KUBE) -runtime $(RUNTIME)

.PHONY: conformance
RUN ?=
conformance: ## the Gateway API's own suite for meshes, on a real kubelet; its report: docs/conformance (root); RUN=MeshPorts runs one test
	$(GO) run ./test/e2e/conformance -kube $(KUBE) -runtime $(RUNTIME) -run '$(RUN)'

.PHONY: cluster cluster-down
cluster: ## a real one-node Kubernetes, left up; builds it first, 15 minutes (root)
	$(GO) build -o bin/cluster ./test/cluster/cmd
	@bin/cluster up --kube $(KUBE) --runtime $(RUNTIME)
cluster-down: ## end it; nothing is left but its logs
	$(GO) build -o bin/cluster ./test/cluster/cmd
	@bin/cluster down --kube $(KUBE) --runtime $(RUNTIME)

.PHONY: traces
traces: ## record what real kubelets do, for the tests of the model; 20 minutes (root)
	$(GO) run ./test/traces/cmd --kube v1.34
	$(GO) run ./test/traces/cmd --kube v1.36

.PHONY: clean
clean: ## remove what was built; .cache stays
	rm -rf bin
