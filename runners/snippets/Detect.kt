// NOT RUN HERE. An exported TensorFlow Lite file (output `raw`) on Android by LiteRT's interpreter
// (com.google.ai.edge.litert:litert). The image is letterboxed before (runners/python/detect.py says
// how): one pixel after the other, RGB in 0 to 1.

import java.io.File
import java.nio.ByteBuffer
import org.tensorflow.lite.Interpreter

data class Detection(val box: FloatArray, val score: Float, val index: Int)

fun detect(path: File, pixels: ByteBuffer, confidence: Float): List<Detection> =
  Interpreter(path).use { interpreter ->
    val (_, anchors, classes) = interpreter.getOutputTensorFromSignature("scores", SIGNATURE).shape()
    val boxes = Array(1) { Array(anchors) { FloatArray(4) } }
    val scores = Array(1) { Array(anchors) { FloatArray(classes) } }
    val outputs = mapOf<String, Any>("boxes" to boxes, "scores" to scores)
    interpreter.runSignature(mapOf("images" to pixels), outputs, SIGNATURE)
    rowsOfHeads(boxes[0], scores[0]).takeWhile { it.score >= confidence }
  }

private const val SIGNATURE = "serving_default"

/**
 * The best 300 anchors by their best class, then the best 300 of those anchors' scores, so that an
 * anchor may come with several classes.
 */
fun rowsOfHeads(boxes: Array<FloatArray>, scores: Array<FloatArray>): List<Detection> =
  scores.indices
    .sortedByDescending { scores[it].max() }
    .take(300)
    .flatMap { anchor ->
      scores[anchor].mapIndexed { index, score -> Detection(boxes[anchor], score, index) }
    }
    .sortedByDescending { it.score }
    .take(minOf(300, scores.size))
