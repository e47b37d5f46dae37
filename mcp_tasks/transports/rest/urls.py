"""The REST addresses: ``path("api/", include("mcp_tasks.transports.rest.urls"))``."""

from django.urls import path

from . import many, owned, payloads, tasks, verbs

app_name = "mcp_tasks_rest"
urlpatterns = [
    path("tasks/<str:ref>/", owned.OwnedTaskView.as_view(), name="task"),
    path("tasks/<str:ref>/answers/", owned.AnswersView.as_view(), name="answers"),
    path("tasks/<str:ref>/cancel/", owned.CancelView.as_view(), name="cancel"),
    path("operator/tasks/", tasks.TaskListView.as_view(), name="operator-tasks"),
    path("operator/tasks/<str:ref>/", verbs.TaskView.as_view(), name="operator-task"),
    path("operator/tasks/<str:ref>/events/", tasks.EventsView.as_view(), name="operator-events"),
    path("operator/tasks/<str:ref>/traceback/", payloads.TracebackView.as_view(), name="operator-traceback"),
    *(
        path(f"operator/tasks/<str:ref>/payload/{what}/", view.as_view(), name=f"operator-payload-{what}")
        for what, view in payloads.PAYLOADS.items()
    ),
    *(
        path(f"operator/tasks/<str:ref>/{verb}/", view.as_view(), name=f"operator-{verb}")
        for verb, view in verbs.VIEWS.items()
    ),
    path("operator/lookup/", many.LookUpView.as_view(), name="operator-lookup"),
    path("operator/bulk-cancel/", many.BulkCancelView.as_view(), name="operator-bulk-cancel"),
    path("operator/overview/", many.OverviewView.as_view(), name="operator-overview"),
    path("operator/processes/", many.ProcessesView.as_view(), name="operator-processes"),
]
