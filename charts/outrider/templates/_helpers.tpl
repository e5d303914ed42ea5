{{/* The name of each object: outriderd, and -REVISION for another revision than the default one. */}}
{{- define "outrider.suffix" -}}
{{- with .Values.revision }}{{ if ne . "default" }}-{{ . }}{{ end }}{{ end }}
{{- end }}
{{- define "outrider.name" -}}
outriderd{{ include "outrider.suffix" . }}
{{- end }}

{{/* What selects the control plane's pods. Not by istio.io/rev: it requests injection from others. */}}
{{- define "outrider.selector" -}}
app: outriderd
outrider.dev/revision: {{ .Values.revision | default "default" }}
{{- end }}

{{/* The labels of each object. */}}
{{- define "outrider.labels" -}}
{{ include "outrider.selector" . }}
app.kubernetes.io/name: outriderd
app.kubernetes.io/part-of: outrider
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* A name with a slash is a whole reference, as injection reads it. */}}
{{- define "outrider.image" -}}
{{- if contains "/" .Values.pilot.image }}{{ .Values.pilot.image }}
{{- else }}{{ .Values.global.hub }}/{{ .Values.pilot.image }}:{{ .Values.global.tag }}
{{- end }}
{{- end }}
