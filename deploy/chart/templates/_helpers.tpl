{{- /* The operator's pods carry these, so that the services find them. */ -}}
{{- define "tenure.selector" -}}
app.kubernetes.io/name: tenure-operator
{{- end -}}

{{- define "tenure.labels" -}}
{{ include "tenure.selector" . }}
app.kubernetes.io/part-of: tenure
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "tenure.image" -}}
{{- $where := required "image.repository: name the image that you built and pushed, for example --set image.repository=registry.example/tenure" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $where }}@{{ .Values.image.digest }}
{{- else -}}
{{ $where }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* Clients, roles and admission policies look for Tenure there. */ -}}
{{- define "tenure.checkNamespace" -}}
{{- if ne .Release.Namespace "tenure-system" -}}
{{- fail (printf "Tenure lives in the namespace tenure-system, not in %s: helm install %s ... --namespace tenure-system --create-namespace" .Release.Namespace .Release.Name) -}}
{{- end -}}
{{- end -}}

{{- define "tenure.certManager" -}}
{{- if and .Values.webhook.enabled .Values.webhook.certManager.enabled -}}true{{- end -}}
{{- end -}}

{{- /* The restricted standard of pod security, for every container. */ -}}
{{- define "tenure.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
